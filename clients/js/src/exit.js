// Releases leases when a page is closed, or when a process has nothing left to do.

/** The leases and the acquires under way of all clients, each with the gateway connection of its client. */
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
