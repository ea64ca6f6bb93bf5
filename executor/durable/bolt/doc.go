// Package bolt is the store of accepted requests in a file of this process
// (go.etcd.io/bbolt).
//
// One goroutine commits. It takes all changes that wait, and no longer, so that many
// writers share a sync of the disk and a single one waits for no other (group commit).
// A commit that fails for another reason than a full disk ends the store: what the
// disk holds is known again only when the file is read anew.
//
// A file is made beside its place and moved there, and so is its compacted copy. At
// every moment a whole file is in place.
//
//	open.go     Open: format version, key; Close
//	commit.go   the goroutine that commits
//	layout.go   buckets, how records are written
//	records.go  requests: accept, append, finish, get
//	claims.go   who has taken which request over
//	values.go   values beside the requests
//	expire.go   retention, compaction
//	damage.go   files that cannot be read as a whole; Rescue
//	pages.go    whether the pages of a file hold together
package bolt
