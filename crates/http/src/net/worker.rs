//! One event loop of several.

use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::drain::Drain;
use super::tasks::{Task, Tasks};

/// Work from another thread.
type Job = Box<dyn FnOnce(&Worker) + Send>;

/// One event loop, as seen by the code that runs on it.
#[derive(Clone)]
pub struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// Tells when this worker begins to drain.
    pub drain: Drain,
    tasks: Rc<Tasks>,
}

impl Worker {
    /// The worker with this index. Without a server, it drains when its `drain` is begun.
    pub fn new(index: usize) -> Self {
        Self { index, drain: Drain::default(), tasks: Rc::default() }
    }

    /// A guard for work that draining must wait for, in addition to the server's own connections.
    pub fn task(&self) -> Task {
        Tasks::one_more(&self.tasks)
    }

    /// Number of tasks to wait for.
    pub fn running(&self) -> usize {
        self.tasks.running()
    }

    /// A handle that gives this worker work from any thread. Must be called on the worker's thread.
    pub fn remote(&self) -> Remote {
        let (jobs, mut given) = mpsc::unbounded_channel::<Job>();
        let worker = self.clone();
        spawn_local(async move {
            while let Some(job) = given.recv().await {
                job(&worker);
            }
        });
        Remote { jobs }
    }

    /// Ready when there is no task to wait for.
    pub async fn all_ended(&self) {
        self.tasks.all_ended().await;
    }
}

/// Gives a worker work from any thread. A connection stays on the worker that accepted it, but the
/// datagrams of a peer come to the worker that the kernel chooses. So a session that one worker
/// agrees on may have to run on another.
#[derive(Clone)]
pub struct Remote {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Remote {
    /// Runs `job` on the worker's thread. There it may spawn tasks that are not `Send`, and take a
    /// [`Task`] for them. False if the worker has ended: `job` is dropped. It is also dropped if
    /// the worker ends before `job` runs.
    pub fn run(&self, job: impl FnOnce(&Worker) + Send + 'static) -> bool {
        self.jobs.send(Box::new(job)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::num::NonZeroUsize;
    use std::sync::mpsc as channel;
    use std::thread;

    use tokio::net::UdpSocket;
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::sync::oneshot;

    use super::*;
    use crate::net::datagrams;

    /// Answers each datagram with the worker's number, until `over`.
    async fn serve(worker: Worker, socket: std::net::UdpSocket, over: oneshot::Receiver<()>) {
        let socket = UdpSocket::from_std(socket).unwrap();
        let answers = async {
            loop {
                let (_, peer) = socket.recv_from(&mut [0; 8]).await.unwrap();
                socket.send_to(&[worker.index as u8], peer).await.unwrap();
            }
        };
        tokio::select! {
            () = answers => {}
            _ = over => worker.all_ended().await,
        }
    }

    #[test]
    fn a_worker_is_given_sockets_and_tasks() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (sockets, address) = datagrams(loopback, NonZeroUsize::new(2).unwrap()).unwrap();
        assert!(datagrams(address, NonZeroUsize::MIN).is_err(), "somebody has the port");
        let mut workers = Vec::new();
        for (index, socket) in sockets.into_iter().enumerate() {
            let (begun, begins) = channel::channel();
            let work = move || {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default())
                    .unwrap();
                runtime.block_on(async move {
                    let worker = Worker::new(index);
                    let (end, over) = oneshot::channel();
                    begun.send((worker.remote(), end)).unwrap();
                    serve(worker, socket, over).await;
                });
            };
            let thread = thread::spawn(work);
            workers.push((thread, begins.recv().unwrap()));
        }

        // All datagrams of a peer come to one worker, those of many peers to each.
        let mut seen = HashSet::new();
        for _ in 0..64 {
            let peer = std::net::UdpSocket::bind(loopback).unwrap();
            peer.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let ask = || {
                peer.send_to(b"who?", address).unwrap();
                let mut answer = [0];
                testkit::uninterrupted(|| peer.recv_from(&mut answer)).unwrap();
                answer[0]
            };
            let worker = ask();
            assert_eq!(ask(), worker);
            seen.insert(worker);
        }
        assert_eq!(seen.len(), 2);

        // A job runs on its worker's thread. The worker ends only after the job's task.
        for (index, (thread, (remote, end))) in workers.into_iter().enumerate() {
            let (ran, runs) = channel::channel();
            assert!(remote.run(move |worker| {
                let (task, index) = (worker.task(), worker.index);
                end.send(()).unwrap();
                spawn_local(async move {
                    let _task = task;
                    tokio::task::yield_now().await;
                    ran.send((index, thread::current().id())).unwrap();
                });
            }));
            let id = thread.thread().id();
            thread.join().unwrap();
            assert_eq!(runs.recv(), Ok((index, id)));
            assert!(!remote.run(|_| unreachable!()), "it has ended");
        }
    }
}
