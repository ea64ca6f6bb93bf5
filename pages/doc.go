// Package pages makes the pages that people look at: reports, plans and what differs between plans, as HTML that needs
// no network, and as Markdown.
//
//	page.go        Page: a title, one sentence, and sections of text, tables, pictures and devices
//	page.html      the template, with the colours for bright and dark
//	devices.go     what runs where, from the layout of a plan
//	run.go         Run: a report with what was written beside it
//	sections.go    the sections about runs, in the order of the page
//	figures.go     the figures of runs by name, for CSV and conditions; the sentence that compares runs
//	live.go        the page of a server that executes a plan, with live.js, which brings it up to date
//	timeline.go    the trace of devices that plan simulate writes
//
// Package picture draws the pictures.
package pages
