// Package requestlog reads what other tools recorded of requests: traces of language models, access logs of proxies and
// servers, and rates that Prometheus stored. The importers of traces and of workloads read the same files with it.
//
// A layout says how one tool writes requests: by which columns or fields a file is recognised, which of them hold the
// time, the model and the tokens, and which requests count. A new tool is one more line in the table of layouts, which
// cites repository, commit and path of where the names of fields are from. A record is one row, JSON object or line of a
// log, with its fields by name.
//
//	layout.go      the table of layouts
//	flags.go       the flags of importers about such files
//	read.go        files into requests: recognise the layout, read the records, put them in order
//	record.go      the three forms of files with a record per request: CSV, JSON lines, lines of a log
//	prefix.go      tokens that were sent before, from the hashes of blocks of prompts
//	prometheus.go  rates and counters of a range query into drawn requests
package requestlog
