// Gives leases back when a page is closed or a process has nothing left to do.

/** Leases, and acquires under way, and the gateway that each is of. */
export const held = new Map();
let listening = false;

function listen() {
  listening = true;
  globalThis.document?.defaultView?.addEventListener('pagehide', () => {
    for (const it of held.keys()) it.leave?.();
  });
  globalThis.process?.on?.('beforeExit', () => {
    for (const it of held.keys()) it.release().catch(() => {});
  });
}

export function releaseOnExit(it, gateway) {
  if (!listening) listen();
  held.set(it, gateway);
}
