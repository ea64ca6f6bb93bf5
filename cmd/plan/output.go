package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"

	"inferplan/formats/document"
)

// printer writes results to stdout and notes to stderr.
type printer struct {
	out, err   io.Writer
	json       bool
	quiet      bool
	width      int // the columns of the terminal, or 0 without one
	verb       string
	typedFlags typedFlags
	log        *slog.Logger // receives notes if not nil, else they are lines on stderr
}

func newPrinter(cmd *cobra.Command, g *globalFlags) *printer {
	out := cmd.OutOrStdout()
	if !slices.Contains([]string{"", "output", "html"}, g.stdoutFlag) { // a file in place of the tables
		out = io.Discard
	}
	return &printer{out, cmd.ErrOrStderr(), g.json, g.quiet, terminalWidth(cmd.OutOrStdout()), cmd.Name(), g.typedFlags, nil}
}

// Write writes to stdout.
func (p *printer) Write(text []byte) (int, error) { return p.out.Write(text) }

// PrintNote prints a line for the person at the terminal.
func (p *printer) PrintNote(format string, args ...any) {
	if p.log != nil {
		p.log.Info(fmt.Sprintf(format, args...))
		return
	}
	if !p.quiet {
		fmt.Fprintf(p.err, format+"\n", args...)
	}
}

// printAssumptions prints the defaults that mattered.
func (p *printer) printAssumptions(lines []string) {
	for _, l := range lines {
		p.PrintNote("assumed: %s", l)
	}
}

// printWarnings prints doubts about a result that is valid all the same.
func (p *printer) printWarnings(lines []string) {
	for _, l := range lines {
		p.PrintNote("warning: %s", l)
	}
}

// PrintJSON prints one JSON document.
func (p *printer) PrintJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// PrintTable prints rows under a header. align has a letter per column: 'r' aligns to the right, 'l' to the left.
func (p *printer) PrintTable(align string, header []string, rows [][]string) error {
	if p.width > 0 && tableWidth(header, rows) > p.width {
		return printNarrow(p.out, p.width, header, rows)
	}

	// Align the columns.
	aligns := make([]tw.Align, len(header))
	for i := range aligns {
		aligns[i] = tw.AlignLeft
		if i < len(align) && align[i] == 'r' {
			aligns[i] = tw.AlignRight
		}
	}
	t := tablewriter.NewTable(p.out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Symbols: tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off},
				Lines:      tw.Lines{ShowHeaderLine: tw.On},
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: aligns}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: aligns}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
	)
	t.Header(header)
	if err := t.Bulk(rows); err != nil {
		return fmt.Errorf("laying out a table: %w", err)
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("printing a table: %w", err)
	}
	return nil
}

// formatRate writes requests per second for a table.
func formatRate(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 10000:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func formatPercent(v float64) string { return strconv.FormatFloat(100*v, 'f', 2, 64) + " %" }

func joinList(items []string) string { return strings.Join(items, ", ") }

// textsOf converts names of a type of their own to strings.
func textsOf[T ~string](names []T) []string {
	return document.Map(names, func(n *T) string { return string(*n) })
}

// printLines prints texts to stdout, one a line.
func (p *printer) printLines(texts []string) {
	for _, text := range texts {
		fmt.Fprintln(p.out, text)
	}
}
