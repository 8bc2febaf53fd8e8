//! Models of what no test of the program can try in every order: the quorum fence of Redlock, and the
//! hand-off of a queue over two gateways on one store.
//!
//! A model is a state machine whose steps are everything that may happen next: a message arrives, late or
//! again, a lease ends, somebody hangs up, a process dies. `search` comes by every state that can be
//! reached and answers the shortest way to one that is wrong; `walk` goes through states at random where
//! there are too many. Each protocol is also tried without each of its guards, and then something wrong
//! must be found: a model that finds nothing proves nothing.
//!
//! A message that is sent may arrive at any later time, any number of times, or never. A lease may end at
//! any instant, because no clock is part of a model. What each one does not know is said in its own
//! documentation.

mod search;

mod fence;
mod hand_off;
