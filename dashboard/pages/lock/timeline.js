// What happens to the lock while the page is open, newest first; without its renewals.

import { html } from "../../view.js";
import { eventsOf, feedVersion, isOfCaller } from "../../model/feed.js";
import { zoneName } from "../../model/format.js";
import { href } from "../../model/route.js";
import { Details, Kind } from "../../parts/event_text.js";
import { Foreign } from "../../parts/text.js";
import { Moment } from "../../parts/times.js";

const MOST_EVENTS = 30;

/** The last events of the lock. */
export function Timeline({ name }) {
  feedVersion.value;
  const events = eventsOf(name, MOST_EVENTS);
  return html`<section class="panel timeline" aria-labelledby="timeline">
    <h2 id="timeline">Last events <span class="none zone">${zoneName()}</span> <a class="aside" href=${href("events", { prefix: name })}>All events</a></h2>
    ${events.length === 0 && html`<p class="nothing">Events appear here as they happen.</p>`}
    <ol>
      ${events.map(
        (event) => html`<li key=${event.number} class=${event.kind}>
          <${Moment} at=${event.at} />
          <${Kind} kind=${event.kind} />
          <span class="what">
            ${isOfCaller(event) && html`<${Foreign} value=${event.owner} none="owner not said" />`}
            <span class="details"><${Details} event=${event} /></span>
          </span>
        </li>`,
      )}
    </ol>
  </section>`;
}
