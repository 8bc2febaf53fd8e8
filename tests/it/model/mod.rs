//! Models of protocols that no test of the program can try in every order: the quorum fence of Redlock, and the
//! hand-off of a queue over two gateways on one store.
//!
//! A model is a state machine whose steps are everything that may happen next: a message arrives, late or again, a
//! lease ends, a caller hangs up, a process dies. `search` visits every state that can be reached and finds the
//! shortest way to a wrong state; `walk` visits states at random where there are too many. Each protocol is also tried
//! without each of its guards, and then a wrong state must be found: a model that finds nothing proves nothing.
//!
//! A message that is sent may arrive at any later time, any number of times, or never. A lease may end at any instant,
//! because no clock is part of a model. The documentation of each model says what the model leaves out.

mod search;

mod fence;
mod hand_off;
