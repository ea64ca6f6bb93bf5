// Package live watches a server while it serves, for its page: a ticker samples the counters that exist, so that a request
// costs nothing, and a page costs at most one look per second, whoever asks for it.
//
//	sampler.go  Sampler: samples of the last ten minutes, and the state at a moment (formats/served)
//	events.go   EventLog: the last messages of the server's log
//	pages.go    the page at / and its state as JSON
package live
