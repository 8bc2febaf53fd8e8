//! One side of a TLS connection, by hand.

use std::{net::SocketAddr, sync::Arc};

use latchgate::tls::{ClientFiles, PemFile};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::Authority;

/// A connector that believes an authority.
pub(crate) fn connector(authority: &Authority, protocols: &[&[u8]]) -> TlsConnector {
    let files = ClientFiles {
        ca: Some(PemFile::new("the test", authority.file())),
        identity: None,
    };
    let mut config = files.config().unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// A connection to this machine.
pub(crate) async fn connect(
    authority: &Authority,
    to: SocketAddr,
    protocols: &[&[u8]],
) -> TlsStream<TcpStream> {
    greet(authority, TcpStream::connect(to).await.unwrap(), protocols).await
}

/// TLS on a connection that is there.
pub(crate) async fn greet(
    authority: &Authority,
    stream: TcpStream,
    protocols: &[&[u8]],
) -> TlsStream<TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    let connector = connector(authority, protocols);
    connector.connect(name, stream).await.unwrap()
}
