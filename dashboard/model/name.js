// What a lock may be called: nothing else is asked for.

const NAME = /^(?!\.{1,2}$)[A-Za-z0-9._:@~-]{1,200}$/;
const BEGIN = /^[A-Za-z0-9._:@~-]{0,200}$/;

/** The rule, for people. */
export const RULE = "A name is 1 to 200 of ASCII letters, digits and the marks . _ : @ ~ - (but not one or two dots alone).";

/** Whether a lock can be called that. */
export const isName = (text) => NAME.test(text);

/** Whether the name of a lock can begin so. */
export const canBegin = (text) => BEGIN.test(text);
