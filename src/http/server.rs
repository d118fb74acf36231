//! Listeners and connections: accepting, limits, graceful stop. Must not know what is served.
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Shared, request};

/// How long accepting rests when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A listener that serves.
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Server {
    pub(super) async fn bind(address: SocketAddr, edge: Shared, router: Router) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let accepting = tokio::spawn(accept(listener, edge, router, stopped));
        Ok(Self { address, stop, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections and requests, and waits for those that are being worked on.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        if let Err(error) = self.accepting.await {
            tracing::error!(%error, "the accept loop ended by itself");
        }
    }
}

async fn accept(listener: TcpListener, edge: Shared, router: Router, mut stopped: watch::Receiver<bool>) {
    let all = u32::try_from(edge.limits.connections).unwrap_or(u32::MAX);
    let room = Arc::new(Semaphore::new(edge.limits.connections));
    loop {
        let accepted = tokio::select! {
            biased;
            () = told(&mut stopped) => break,
            accepted = next(&listener, &room) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                let connection = serve(stream, Arc::clone(&edge), router.clone(), stopped.clone(), permit);
                tokio::spawn(connection);
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                let _ = timeout(ACCEPT_PAUSE, told(&mut stopped)).await;
            }
        }
    }
    // Refuse new connections at once, then let the open ones finish: each holds a permit, and ends itself in time.
    drop(listener);
    let _ = room.acquire_many(all).await;
}

/// Returns once the server was told to stop, or is gone.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn next(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn serve(
    stream: TcpStream,
    edge: Shared,
    router: Router,
    mut stopped: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) {
    // Answers are small and awaited: waiting for more to send would cost 40 ms each.
    let _ = stream.set_nodelay(true);
    let (header_timeout, grace) = (edge.limits.header_timeout, edge.limits.stop_grace);
    let handle = service_fn(move |request| request::handle(Arc::clone(&edge), router.clone(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(header_timeout);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), handle));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            timeout(grace, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    drop(permit);
}
