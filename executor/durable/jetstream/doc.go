// Package jetstream is the store of accepted requests in a NATS JetStream cluster, for
// front ends and servers in several processes and on several machines.
//
// A message is durable when most of three nodes have synced it. The servers must run
// with sync_interval: always. Their default syncs every two minutes and loses what was
// acknowledged before a loss of power.
//
// One stream has the requests, under three subjects each:
//
//	PREFIX.req.ID    the record
//	PREFIX.state.ID  pieces of text, then the end
//	PREFIX.due.ID    when it ended, and its class
//
// A message under state names the last one that its writer has seen (the server refuses
// it otherwise), so two writers never mix their texts: who lost a request hears ErrMoved.
// Publishing is tried again with the same message id, which the server knows for two
// minutes.
//
// A record is read back in a fixed number of round trips: its request, the last message
// of its state, and all of them together. The leader of the stream says which is the
// last one, since others may lag. Any node may give the rest.
//
// The servers send a message of a record's state on, once it is stored, under
// PREFIX.news.ID. So a front end hears of the requests of its own clients, and of no
// others.
//
// A durable consumer hands each record to one holder. While a process holds it, it tells
// the server so. Without a word for AckWait the record goes to another. It is
// acknowledged when it has ended.
//
// Values lie in a bucket of the key-value store.
//
//	open.go     Open: stream, consumer, bucket; Close
//	records.go  accept, append, finish, get
//	claims.go   who has taken which request over, heartbeats
//	shared.go   records that go from one process to another, news of them, messages
//	lead.go     which process plans
//	values.go   values, retention
package jetstream
