package instrument

import (
	"fmt"
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Table is a table in the making.
type Table struct {
	Columns []string
	Rows    [][]string
	Notes   []string
}

// Add adds a row; cells are written as fmt.Print does.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Note adds a line below the table.
func (t *Table) Note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
}

// Markdown writes the table, and its notes as paragraphs.
func (t *Table) Markdown(out io.Writer) error {
	w := tablewriter.NewTable(out, tablewriter.WithRenderer(renderer.NewMarkdown()),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithHeaderAutoWrap(tw.WrapNone), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignment(tw.AlignLeft), tablewriter.WithRowAlignment(tw.AlignLeft))
	w.Header(t.Columns)
	if err := w.Bulk(t.Rows); err != nil {
		return fmt.Errorf("laying out a table: %w", err)
	}
	if err := w.Render(); err != nil {
		return fmt.Errorf("printing a table: %w", err)
	}
	for _, line := range t.Notes {
		if _, err := fmt.Fprintf(out, "\n%s\n", line); err != nil {
			return err
		}
	}
	return nil
}
