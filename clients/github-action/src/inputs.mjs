// The inputs of the action, as the runner passes them on.

import { createHash } from 'node:crypto';

/** Those of action.yml, for an input that is there and empty. */
export const DEFAULTS = { wait: '10m', ttl: '1m', 'max-hold': '6h', 'on-lost': 'fail', outdated: 'fail' };

const OWNER_LENGTH = 128;
/** What the gateway takes as `supersedes`: 1 to 64 characters, none a control character or half of a surrogate pair. */
const SUPERSEDES = /^[^\p{Cc}\p{Cs}]{1,64}$/u;

export const input = (name) => (process.env[`INPUT_${name.toUpperCase()}`] ?? '').trim() || DEFAULTS[name];

function required(name) {
  const value = input(name);
  if (!value) throw new Error(`${name}: required`);
  return value;
}

function duration(name) {
  const text = input(name);
  if (text === '0') return 0;
  if (/^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text)) return text;
  throw new Error(`${name}: expected a time such as 30s, 10m or 2h, not '${text}'`);
}

function oneOf(name, values) {
  const value = input(name);
  if (value === undefined || values.includes(value)) return value;
  throw new Error(`${name}: expected ${values.join(' or ')}, not '${value}'`);
}

const lockArguments = () => (input('lock') ?? '').split(/[\s,]+/).filter(Boolean);

export const lockNames = () => lockArguments().map((text) => text.split('=')[0]);

/** A lock as the client takes it: `NAME`, `NAME=shared`, or `NAME=20` for one of twenty places. */
function lockOf(text) {
  const [name, ...terms] = text.split('=');
  if (!terms.length) return name;
  const mode = terms.join('=');
  if (mode === 'shared') return { name, mode };
  if (/^[1-9]\d*$/.test(mode)) return { name, limit: Number(mode) };
  throw new Error(`lock: expected shared or a number behind the =, not '${text}'`);
}

/**
 * The `supersedes` text for a job. A text that the gateway refuses is hashed as a whole: a part of the text could be the
 * same for the jobs of two repositories, and one would take the other out of the queue.
 */
const supersedesOf = (job) => (SUPERSEDES.test(job) ? job : createHash('sha256').update(job).digest('hex'));

export const failsIfLost = () => oneOf('on-lost', ['fail', 'warn']) === 'fail';

export const skipsIfOutdated = () => oneOf('outdated', ['fail', 'skip']) === 'skip';

function orderOf(text) {
  if (text === undefined || (/^\d+$/.test(text) && Number.isSafeInteger(Number(text)))) return text && Number(text);
  throw new Error(`order: expected a whole number up to 9007199254740991, not '${text}'`);
}

/** What it takes to get ID tokens of the job; nothing if the job has an API key. */
function oidcOf(env) {
  const isOn = oneOf('oidc', ['true', 'false']) === 'true';
  if (!isOn && input('key-name')) throw new Error('key-name: goes with oidc');
  if (!isOn) return undefined;
  if (input('key')) throw new Error('oidc: goes without a key');
  const { ACTIONS_ID_TOKEN_REQUEST_URL: requestUrl, ACTIONS_ID_TOKEN_REQUEST_TOKEN: requestToken } = env;
  if (!requestUrl || !requestToken) {
    throw new Error('oidc: this job may not get an ID token. Give it the permission `id-token: write`; a pull request from a fork has none');
  }
  return { requestUrl, requestToken, audience: required('url').replace(/\/+$/, ''), keyName: input('key-name') };
}

export function readInputs(env = process.env) {
  required('lock');
  failsIfLost();
  skipsIfOutdated();
  const limit = input('limit');
  if (limit !== undefined && !/^[1-9]\d*$/.test(limit)) throw new Error(`limit: expected a number, not '${limit}'`);
  const locks = lockArguments().map(lockOf);
  const forAll = ['mode', 'limit'].find((name) => input(name));
  if (forAll && locks.some((lock) => lock.name)) throw new Error(`${forAll}: is for all locks, and lock has one with a = of its own`);
  const latest = oneOf('latest', ['true', 'false']);
  if (latest === 'true' && locks.length > 1) throw new Error('latest: is for one lock, and lock names several');
  const order = orderOf(input('order'));
  const rollback = input('rollback');
  if (rollback && order === undefined) throw new Error('rollback: goes with an order');
  const job = `${env.GITHUB_REPOSITORY} ${env.GITHUB_WORKFLOW} ${env.GITHUB_JOB}`;
  const ofRun = `${env.GITHUB_REPOSITORY} ${env.GITHUB_WORKFLOW} #${env.GITHUB_RUN_NUMBER}`;
  const run = `${env.GITHUB_SERVER_URL}/${env.GITHUB_REPOSITORY}/actions/runs/${env.GITHUB_RUN_ID}`;
  return {
    url: required('url'),
    key: input('key'),
    oidc: oidcOf(env),
    names: lockNames(),
    locks,
    options: {
      wait: duration('wait'),
      ttl: duration('ttl'),
      maxHold: duration('max-hold'),
      minHold: input('min-hold') && duration('min-hold'),
      mode: oneOf('mode', ['exclusive', 'shared']),
      limit: limit && Number(limit),
      supersedes: latest === 'true' ? supersedesOf(job) : undefined,
      order,
      rollback,
      owner: [...(input('owner') ?? ofRun)].slice(0, OWNER_LENGTH).join(''),
      metadata: { run, job: `${env.GITHUB_JOB}` },
    },
  };
}
