// Package picture draws pictures as SVG by gonum.org/v1/plot: for pages of HTML, and for documents.
//
//	panels.go    Panels: line plots above each other with a legend, as a document of its own
//	inline.go    Figure.Inline: the same plots as an element of a page, in the page's colours
package picture
