// Package samples reads labelled samples for a family of classifiers: CSV,
// plain or gzip, with a header whose first column is "label". Every row is a
// sample: its class, counted from 0, and then the values of the model's input,
// flattened row by row. Questions for language models are CSV, too: label,prompt.
package samples
