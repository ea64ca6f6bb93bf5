// Package trace imports arrivals in CSV, single requests or counts, into a request trace.
package trace
