// The ID token of the job, which GitHub signs for whoever has the request token of a job with `id-token: write`.

/** How long GitHub may take to answer. */
const ANSWER_MS = 5_000;

/** An error after which the client asks again, until its wait is over. */
const temporary = (text) => Object.assign(new Error(text), { isTemporary: true });

/** Gets an ID token for an audience. The tokens live for five minutes or so: each exchange needs one of its own. */
export async function githubToken({ requestUrl, requestToken, audience }) {
  const address = new URL(requestUrl);
  address.searchParams.set('audience', audience);
  let answer;
  let text;
  try {
    answer = await fetch(address, {
      headers: { accept: 'application/json', authorization: `Bearer ${requestToken}` },
      redirect: 'error',
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    text = await answer.text();
  } catch (error) {
    // The message has no more than the code of the cause: other texts could show the address, which names the job.
    throw temporary(`GitHub gives no ID token (${error.cause?.code ?? error.name})`);
  }
  const why = `GitHub gives no ID token (status ${answer.status})`;
  if (answer.status === 429 || answer.status >= 500) throw temporary(why);
  if (!answer.ok) throw new Error(`${why}. Has the job \`permissions: id-token: write\`?`);
  try {
    const { value } = JSON.parse(text);
    if (typeof value === 'string') return value;
  } catch {
    // It is no JSON.
  }
  throw temporary('GitHub gives no ID token (its answer is not understood)');
}
