// Package jetstream is the store of accepted requests in a NATS JetStream cluster, for front ends and servers in
// several processes on several machines.
//
// Vocabulary:
//
//   - Claim: a record that this process has claimed (claim). The server redelivers it if the process sends no
//     heartbeat for AckWait.
//   - State of a record: the messages with its pieces of text and its result. The tip is the last of them.
//   - Lease: the right to lead, which a process keeps by writing a key from time to time.
//   - Foreign message: a message that none of our processes has written, since anybody with access to the servers may
//     write under our names.
//
// A message is durable when a majority of the nodes, usually three, has synced it. The servers must run with
// sync_interval: always. With their default they sync every two minutes, and lose acknowledged messages when the
// power fails.
//
// One stream has the requests, under three subjects each:
//
//	PREFIX.req.ID    the record
//	PREFIX.state.ID  pieces of text, then the result
//	PREFIX.due.ID    when it ended, and its class
//
// A message under state names the last message that its writer has seen. The server refuses it if there is a later
// one, so the texts of two writers never mix: a process that has lost a request gets ErrConflict. Publishing is
// repeated with the same message id, which the server recognises for two minutes.
//
// A record is read in a fixed number of round trips: its request, the last message of its state, and all messages of
// its state. The leader of the stream is asked for the last message, because other nodes may lag. Any node may be
// asked for the rest.
//
// When a message of a record's state is stored, the servers publish it again under PREFIX.news.ID. A front end
// receives only those of its own clients' requests.
//
// A durable consumer delivers each record to one process. While that process holds it, it sends heartbeats. After
// AckWait without one, the record is delivered to another process. It is acknowledged when it has ended.
//
// Values lie in a bucket of the key-value store.
//
// Order of reading: open.go, records.go, claims.go, shared.go (records that pass from one process to another, and
// messages), lead.go (which process leads), values.go (values and retention), foreign.go.
package jetstream
