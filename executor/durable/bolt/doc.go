// Package bolt is the store of accepted requests in a file of one process, in the format of go.etcd.io/bbolt.
//
// Vocabulary:
//
//   - Change: something to be committed. Many changes make one commit.
//   - Piece: a part of the text of a record, as it was appended.
//   - Due: a record that has ended is in the list of due records, by class and time, until it expires.
//   - Compaction: the file is written again without its free pages.
//
// One goroutine commits. It takes all changes that wait at the moment, so that many writers share one sync of the
// disk, and a single writer waits for no other (group commit). If a commit fails for a reason other than a full disk,
// the store ends, because only reading the file again shows what the disk holds.
//
// A new file, and a compacted one, is written under another name and then renamed. So there is a complete file in
// place at every moment.
//
// Order of reading: layout.go (buckets and entries), open.go, commit.go, records.go, claims.go, values.go, expire.go
// (retention and compaction), damage.go and pages.go (files that cannot be read completely).
package bolt
