package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminalWidth returns the width of the terminal behind w, or 0 if there is none. Tables then have their full
// width.
func terminalWidth(w io.Writer) int {
	if out, ok := w.(*checkedWriter); ok {
		w = out.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// tableWidth returns the width of a table: that of its columns, with a space on both sides.
func tableWidth(header []string, rows [][]string) int {
	sum := 0
	for i, h := range header {
		widest := utf8.RuneCountInString(h)
		for _, row := range rows {
			if i < len(row) {
				widest = max(widest, utf8.RuneCountInString(row[i]))
			}
		}
		sum += widest + 2
	}
	return sum
}

// printNarrow prints a table that is too wide for the terminal row by row, as names and values, because a row that
// the terminal breaks cannot be read. A column without a name belongs to the one before it. An empty one is left
// out.
func printNarrow(w io.Writer, width int, header []string, rows [][]string) error {
	for _, row := range rows {
		// Write each cell behind its column's name.
		var items []string
		for i, cell := range row[1:] {
			switch name := header[i+1]; {
			case cell == "":
			case name == "" && len(items) > 0:
				items[len(items)-1] += " " + cell
			default:
				items = append(items, strings.TrimSpace(name+" "+cell))
			}
		}
		if row[0] != "" {
			if _, err := fmt.Fprintln(w, row[0]); err != nil {
				return err
			}
		}

		// Fill lines with them.
		line := " "
		for i, item := range items {
			if i < len(items)-1 {
				item += ","
			}
			if line != " " && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(item) > width {
				if _, err := fmt.Fprintln(w, line); err != nil {
					return err
				}
				line = "   "
			}
			line += " " + item
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
