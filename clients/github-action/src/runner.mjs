// What the runner of GitHub is told: lines of the log, annotations, outputs and state.

import { appendFileSync } from 'node:fs';

const escapeData = (text) => text.replace(/%/g, '%25').replace(/\r/g, '%0D').replace(/\n/g, '%0A');

/** Texts of the gateway come from others: none of them becomes a command to the runner. */
const harmless = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ').replaceAll('##[', '## [');

export const log = (text) => console.log(harmless(text).replace(/^\s*::/, ': :'));

/** `kind` is error, warning or notice: people see it at the top of the run. */
export const annotate = (kind, text) => console.log(`::${kind} title=Latchgate::${escapeData(harmless(text))}`);

/** From now on the runner shows `***` instead. */
export const mask = (secret) => console.log(`::add-mask::${escapeData(secret)}`);

function append(variable, name, value) {
  const file = process.env[variable];
  if (!file) throw new Error(`this runs in a job of GitHub Actions only: ${variable} is not set`);
  appendFileSync(file, `${name}=${value}\n`);
}

export const setOutput = (name, value) => append('GITHUB_OUTPUT', name, value);

/** What `post.mjs` finds in its environment as STATE_name. */
export const saveState = (name, value) => append('GITHUB_STATE', name, value);
