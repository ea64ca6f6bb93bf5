// Package csvfile reads CSV files with a header, plain or compressed with gzip whatever their name. It is strict
// and reads row by row: every line has the columns of the header, quotes are closed, no column name occurs twice,
// no line is longer than a limit. Errors are document.Errors that name file, line and column.
//
// It reads request traces, counts, records, samples and block latencies.
package csvfile
