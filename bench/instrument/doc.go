// Package instrument is the frame of the programs in bench/. An instrument is a list of parts. Each part fills a table and
// states figures: claims with what was asked and what was measured. The frame reads flags, keeps results so that an interrupted
// run goes on, reports progress, prints tables as Markdown and writes bench/NAME/figures.json.
//
//	instrument.go   Main: flags, the choice of parts, their tables and figures
//	run.go          Run: what a part has at hand, and how it states figures
//	table.go        Table: rows and notes, written as Markdown
//	results.go      Measured: results by key, in a file of JSON lines
//	plan.go         Plan: a plan within a result
//
// The shortest instrument:
//
//	func main() {
//		b := &bench{}
//		instrument.Main(&instrument.Instrument{Name: "rates", Parts: []instrument.Part{{Name: "rates", Title: "What plans hold", Measure: b.rates}}})
//	}
package instrument
