// Package table holds the tables that instruments print: rows of anything, notes
// below, written as Markdown.
package table
