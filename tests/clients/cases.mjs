// All cases of the JavaScript client: those that every language has, and those of its lock manager.

import { runAll as runShared } from '../../clients/js/test/conformance.mjs';
import { runAll as runManager } from '../../clients/js/test/manager.mjs';

export const runAll = async (rig) => [...(await runShared(rig)), ...(await runManager(rig))];
