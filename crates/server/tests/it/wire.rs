//! What may lie between a client and a replica: a proxy that loses, delays or repeats.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to a request and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is carried out, and the connection breaks without an answer.
    Lost,
    /// The answer comes later.
    Delayed(Duration),
    /// It is sent twice, and the first answer is handed on.
    Repeated,
}

#[derive(Default)]
struct Faults {
    next: Option<Fault>,
    every: Option<Fault>,
}

/// A proxy, which lives as long as the test.
pub(crate) struct Wire {
    address: SocketAddr,
    faults: Arc<Mutex<Faults>>,
}

impl Wire {
    pub(crate) fn to(replica: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let faults = Arc::new(Mutex::new(Faults::default()));
        let shared = Arc::clone(&faults);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, faults) = (client.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || hand_on(client, replica, &faults));
            }
        });
        Self { address, faults }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// One answer from now on.
    pub(crate) fn next_answer(&self, fault: Fault) {
        self.faults.lock().unwrap().next = Some(fault);
    }

    pub(crate) fn every_answer(&self, fault: Fault) {
        self.faults.lock().unwrap().every = Some(fault);
    }
}

/// Requests of one connection, one after the other, until either side has enough.
fn hand_on(mut client: TcpStream, replica: SocketAddr, faults: &Mutex<Faults>) {
    while let Some(request) = message(&mut client) {
        let fault = {
            let mut faults = faults.lock().unwrap();
            faults.next.take().or(faults.every)
        };
        let Some(answer) = exchange(replica, &request) else {
            break;
        };
        match fault {
            Some(Fault::Lost) => break,
            Some(Fault::Delayed(time)) => std::thread::sleep(time),
            Some(Fault::Repeated) => drop(exchange(replica, &request)),
            None => {}
        }
        if client.write_all(&answer).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn exchange(replica: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let mut server = TcpStream::connect(replica).ok()?;
    server.write_all(request).ok()?;
    message(&mut server)
}

/// One message: its head, and a body as long as the head says. `None` at the end.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |length| length.trim().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    bytes.extend(body);
    Some(bytes)
}
