// Package csvfile reads CSV files with a header, plain or packed with gzip
// whatever their name, strictly and row by row: every line has the columns of
// the header, quotes are closed, no column name stands twice, no line is longer
// than a limit. What is wrong comes back as a document.Error that names file,
// line and column.
//
// Request traces, counts, records, samples and block latencies are read with it.
package csvfile
