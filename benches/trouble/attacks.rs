//! Hostile clients and processes. None has more privileges than any user of the machine or of its network.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::janitor::Janitor;
use crate::load::Load;

/// Number of connections that are opened and never send data.
const IDLE: usize = 33;
/// Number of connections that send one byte of a request at a time.
const SLOW: usize = 500;
/// Number of clients that request profiles without a pause.
const HAMMERS: usize = 20;

/// Number of connections, and results of the requests for profiles.
#[derive(Debug, Default)]
pub(crate) struct Attacked {
    pub(crate) connections: AtomicU64,
    pub(crate) profiles: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// The compiled programs of the attacks.
pub(crate) struct Programs {
    renames: String,
    made: String,
}

impl Programs {
    pub(crate) fn compile(janitor: &Janitor) -> Self {
        Self { renames: compile(janitor.scratch(), "renames"), made: compile(janitor.scratch(), "made") }
    }

    /// Starts them as a part of the load.
    fn start(&self, janitor: &Janitor, load: &mut Load) {
        load.runs(&[&self.renames]);
        let pid = load.runs(&[&self.made]);
        janitor.removes(Path::new(&format!("/tmp/perf-{pid}.map")));
    }
}

/// The running attacks.
pub(crate) struct Attacks {
    ends: Arc<AtomicBool>,
    attacked: Arc<Attacked>,
    clients: JoinHandle<()>,
}

impl Attacks {
    /// Starts the programs, and the clients at the address `from`.
    pub(crate) fn start(
        programs: &Programs,
        janitor: &Janitor,
        address: &str,
        from: IpAddr,
        load: &mut Load,
    ) -> Self {
        programs.start(janitor, load);
        let ends = Arc::new(AtomicBool::new(false));
        let attacked = Arc::new(Attacked::default());
        let clients = {
            let (ends, attacked) = (Arc::clone(&ends), Arc::clone(&attacked));
            let address = address.parse().unwrap();
            thread::spawn(move || attack(address, from, &ends, &attacked))
        };
        Self { ends, attacked, clients }
    }

    pub(crate) fn end(self) -> Arc<Attacked> {
        self.ends.store(true, Ordering::Relaxed);
        self.clients.join().unwrap();
        self.attacked
    }
}

fn compile(scratch: &Path, name: &str) -> String {
    let to = scratch.join(name);
    let source = format!("{}/benches/trouble/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("gcc").args(["-O2", "-pthread", "-o"]).arg(&to).arg(source).status();
    assert!(status.unwrap().success(), "gcc failed");
    to.to_str().unwrap().to_owned()
}

fn attack(address: SocketAddr, from: IpAddr, ends: &AtomicBool, attacked: &Arc<Attacked>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let attacker = Attacker { address, from, attacked: Arc::clone(attacked) };
        for _ in 0..IDLE {
            tokio::spawn(attacker.clone().idle());
        }
        for _ in 0..SLOW {
            tokio::spawn(attacker.clone().slow());
        }
        for number in 0..HAMMERS {
            tokio::spawn(attacker.clone().hammer(number));
        }
        while !ends.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100)).await;
        }
    });
    // This ends its tasks and thus its connections.
    runtime.shutdown_background();
}

#[derive(Clone)]
struct Attacker {
    address: SocketAddr,
    from: IpAddr,
    attacked: Arc<Attacked>,
}

impl Attacker {
    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
        let stream = socket.connect(self.address).await?;
        self.attacked.connections.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }

    /// Holds a connection until the other side closes it.
    async fn idle(self) {
        loop {
            if let Ok(stream) = self.connect().await {
                drop(read_to_end(&stream).await);
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Sends a byte every two seconds.
    async fn slow(self) {
        loop {
            if let Ok(stream) = self.connect().await {
                for byte in
                    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Long: ".iter().chain([b'x'; 1000].iter())
                {
                    if stream.writable().await.is_err() || stream.try_write(&[*byte]).is_err() {
                        break;
                    }
                    sleep(Duration::from_secs(2)).await;
                }
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Requests profiles in a loop.
    async fn hammer(self, number: usize) {
        let path = ["/folded?type=cpu", "/flamegraph?type=cpu", "/debug/pprof/profile?seconds=1", "/top"]
            [number % 4];
        loop {
            let answer = timeout(Duration::from_secs(60), self.profile(path)).await;
            let count = match answer {
                Ok(Ok(head)) if head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.0 200") => {
                    &self.attacked.profiles
                }
                Ok(Ok(head)) if !head.is_empty() => &self.attacked.refusals,
                _ => &self.attacked.errors,
            };
            count.fetch_add(1, Ordering::Relaxed);
            // A rejected client retries at once, with a pause so that it does not only use CPU time.
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn profile(&self, path: &str) -> io::Result<Vec<u8>> {
        let stream = self.connect().await?;
        stream.writable().await?;
        stream.try_write(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
        read_to_end(&stream).await
    }
}

/// Reads until the other side closes, and returns the first bytes.
async fn read_to_end(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let (mut first, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(first),
            Ok(size) if first.is_empty() => first.extend(&buffer[..size.min(64)]),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
