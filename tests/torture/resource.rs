//! Two registers for each lock, and for each slot of a shared lock, which clients change while they hold it: one checks
//! fencing tokens, and the other takes every write.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    history::{Event, Resource, ResourceWrite},
    journal::Journal,
};

/// The registers, and which clients are changing them.
#[derive(Clone)]
pub(crate) struct Registers {
    inner: Arc<Mutex<Inner>>,
    journal: Journal,
}

#[derive(Default)]
struct Inner {
    fenced: HashMap<Place, Register>,
    unfenced: HashMap<Place, u64>,
    /// For each client, the number of its changes that have begun and not ended.
    inside: BTreeMap<String, usize>,
}

/// The owner of a pair of registers: a whole lock, or a slot of it.
type Place = (String, Option<u64>);

#[derive(Default)]
struct Register {
    value: u64,
    /// The highest fencing token that has read or written.
    mark: u64,
}

/// A request of a client to the registers.
#[derive(Serialize, Deserialize)]
struct Said {
    by: String,
    lock: String,
    slot: Option<u64>,
    fence: u64,
    /// The values that the client has read, to each of which it adds one. Without them, the request reads.
    read: Option<Both>,
}

/// The values of both registers of a lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Both {
    fenced: u64,
    unfenced: u64,
}

/// A client's connection to the registers.
pub(crate) struct Registry {
    stream: BufReader<TcpStream>,
    by: String,
}

// === impl Registers ===

impl Registers {
    /// Serves clients for as long as `tasks` lives. Answers the registers and their address.
    pub(crate) async fn serve(journal: Journal, tasks: &mut JoinSet<()>) -> (Self, SocketAddr) {
        let registers = Self {
            inner: Arc::default(),
            journal,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = registers.clone();
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let registers = serving.clone();
                // The end of a killed client does not stop the registers.
                clients.spawn(async move { drop(registers.listen(client).await) });
            }
        });
        (registers, address)
    }

    /// A client that is in the middle of a change; none if there is no such client.
    pub(crate) fn anybody_inside(&self, choice: usize) -> Option<String> {
        let inner = self.inner.lock().unwrap();
        let inside: Vec<_> = inner
            .inside
            .iter()
            .filter(|(_, count)| **count > 0)
            .collect();
        let chosen = choice.checked_rem(inside.len())?;
        Some(inside[chosen].0.clone())
    }

    /// Whether this client is in the middle of a change.
    pub(crate) fn is_inside(&self, client: &str) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.inside.get(client).is_some_and(|count| *count > 0)
    }

    async fn listen(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut client = BufReader::new(client);
        let mut line = String::new();
        let mut open: Option<String> = None;
        while client.read_line(&mut line).await? > 0 {
            let said: Said = serde_json::from_str(&line)?;
            if open.is_none() && said.read.is_none() {
                open = Some(said.by.clone());
                self.count(&said.by, true);
            } else if said.read.is_some() && open.take().is_some() {
                self.count(&said.by, false);
            }
            let mut answer = serde_json::to_vec(&self.hear(said))?;
            answer.push(b'\n');
            client.write_all(&answer).await?;
            line.clear();
        }
        if let Some(by) = open {
            self.count(&by, false);
        }
        Ok(())
    }

    fn count(&self, client: &str, comes: bool) {
        let mut inner = self.inner.lock().unwrap();
        let inside = inner.inside.entry(client.to_owned()).or_default();
        *inside = if comes {
            *inside + 1
        } else {
            inside.saturating_sub(1)
        };
    }

    /// Reads or writes the registers. Answers nothing if the fenced register refuses the write.
    fn hear(&self, said: Said) -> Option<Both> {
        let Said {
            lock,
            slot,
            fence,
            read,
            ..
        } = said;
        let mut inner = self.inner.lock().unwrap();
        let inner = &mut *inner;
        let place = (lock.clone(), slot);
        let unfenced = inner.unfenced.entry(place.clone()).or_default();
        let fenced = inner.fenced.entry(place).or_default();
        let refused = fence < fenced.mark;
        let Some(read) = read else {
            // A client that reads in order to write counts with its fencing token from now on.
            fenced.mark = fence.max(fenced.mark);
            return Some(Both {
                fenced: fenced.value,
                unfenced: *unfenced,
            });
        };
        let writes = |resource, base, taken, was| {
            Event::Writes(ResourceWrite {
                resource,
                lock: lock.clone(),
                fence,
                base,
                taken,
                was,
                slot,
            })
        };
        let of_fenced = writes(Resource::Fenced, read.fenced, !refused, fenced.value);
        let of_unfenced = writes(Resource::Unfenced, read.unfenced, true, *unfenced);
        self.journal.write(of_fenced);
        self.journal.write(of_unfenced);
        *unfenced = read.unfenced + 1;
        if refused {
            return None;
        }
        fenced.mark = fence;
        fenced.value = read.fenced + 1;
        Some(read)
    }
}

// === impl Registry ===

impl Registry {
    pub(crate) async fn connect(to: SocketAddr, by: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            by: by.to_owned(),
        })
    }

    pub(crate) async fn read(
        &mut self,
        lock: &str,
        slot: Option<u64>,
        fence: u64,
    ) -> io::Result<Both> {
        let both = self.say(lock, slot, fence, None).await?;
        both.ok_or_else(|| io::Error::other("whoever reads is told"))
    }

    /// Writes the read values plus one. Answers whether the fenced register took the write.
    pub(crate) async fn write(
        &mut self,
        lock: &str,
        slot: Option<u64>,
        fence: u64,
        read: Both,
    ) -> io::Result<bool> {
        Ok(self.say(lock, slot, fence, Some(read)).await?.is_some())
    }

    async fn say(
        &mut self,
        lock: &str,
        slot: Option<u64>,
        fence: u64,
        read: Option<Both>,
    ) -> io::Result<Option<Both>> {
        let said = Said {
            by: self.by.clone(),
            lock: lock.to_owned(),
            slot,
            fence,
            read,
        };
        let mut line = serde_json::to_vec(&said)?;
        line.push(b'\n');
        self.stream.write_all(&line).await?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }
}
