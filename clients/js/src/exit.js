// Gives leases back when a page is closed or a process has nothing left to do.

/** Leases, and the gateway that each is of. */
const leases = new Map();
let listening = false;

function listen() {
  listening = true;
  globalThis.document?.defaultView?.addEventListener('pagehide', () => {
    for (const lease of leases.keys()) lease.leave();
  });
  globalThis.process?.on?.('beforeExit', () => {
    for (const lease of leases.keys()) lease.release().catch(() => {});
  });
}

export const releaseOnExit = {
  add(lease, gateway) {
    if (!listening) listen();
    leases.set(lease, gateway);
  },
  delete(lease) {
    leases.delete(lease);
  },
  of(gateway) {
    return [...leases.keys()].filter((lease) => leases.get(lease) === gateway);
  },
};
