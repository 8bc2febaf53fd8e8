// What a lock may be called: nothing else is asked for.

/** What a proxy that decodes `%2F` would take for an operation, at the end of a name. */
const OPERATIONS = ["break", "check", "granted-order", "history", "hold", "release", "renew"];

const SEGMENT = String.raw`(?!\.\.?(?:\/|$))[\w.:@~-]+`;
const NAME = new RegExp(String.raw`^(?=.{1,200}$)(?!.*\/(?:${OPERATIONS.join("|")})$)${SEGMENT}(?:\/${SEGMENT})*$`);
const BEGIN = new RegExp(String.raw`^(?=.{0,200}$)(?:${SEGMENT}\/)*[\w.:@~-]*$`);

/** The rule, for people. */
export const RULE =
  "A name is 1 to 200 of ASCII letters, digits and the marks . _ : @ ~ - and /. Between slashes nothing is empty, one dot or two dots, and behind a slash the end is not " +
  `${OPERATIONS.slice(0, -1).join(", ")} or ${OPERATIONS.at(-1)}.`;

/** Whether a lock can be called that. */
export const isName = (text) => NAME.test(text);

/** Whether the name of a lock can begin so. */
export const canBegin = (text) => BEGIN.test(text);

/** How long the name of an owner may be. */
export const LONGEST_OWNER = 128;
