// Package formats holds the documents that the parts of inferplan exchange:
// profile, cluster, workload, plan and report, their strict decoding and their
// validation.
//
// Every document is JSON (YAML too where a person writes it) and starts with
// `format: inferplan.<kind>/v<version>`. Numbers written by machines name their unit in
// the key: _us (microseconds, at most three decimals, held exactly as integer
// nanoseconds), _bytes, _rps, _gbps, _usd_per_hour, _watts. People may write
// "200ms", "24GiB" or "5x".
//
// A field with a `default` tag is left out for that default; an explicit zero
// in it is an error, because it would silently mean the default.
//
// The typical steps: Decode a file into its type (unknown fields are errors
// with file, line and path), Validate what no type can say, use it, and Write
// it whole or not at all.
//
// Package document reads and writes, whatever the kind: texts with the place of everything, checks, units and options.
// Here are the kinds: their types, what they check, and their schemas. Other sub-packages hold what is
// built from documents: arrivals (request streams), report (accumulators) and diff (what moved between two plans). Nothing here imports a package of another folder.
package formats
