package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/condition"
	"inferplan/formats/diff"
	"inferplan/formats/document"
	"inferplan/formats/outcomes"
	"inferplan/formats/usage"
	"inferplan/pages"
	"inferplan/planner/explain"
)

// reportOptions are the flags of plan report that say what it writes, and what fails.
type reportOptions struct {
	html, format, plan string
	outcomes, traces   []string // files, in the order of the reports
	conditions         []string
}

var reportFormats = []string{"text", "markdown", "csv"}

func (o *reportOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.html, "html", "", "page to write: one file that loads nothing")
	f.StringVar(&o.format, "format", "text", "text, markdown or csv")
	f.StringVar(&o.plan, "plan", "", "plan that ran, for the page (default: the first report's, if it is still there)")
	f.StringArrayVar(&o.outcomes, "outcomes", nil, "outcomes of the requests of the next report, as simulate and load --outcomes write them, for the page (repeatable)")
	f.StringArrayVar(&o.traces, "chrome-trace", nil, "trace of the devices of the next report, as simulate --chrome-trace writes it, for the page (repeatable)")
	f.StringArrayVar(&o.conditions, "fail-if", nil, "condition on a model's figures; exit 1 if it holds for one (repeatable)")
	completeFlag(cmd, "format", reportFormats...)
}

// check checks the flags before any file is read. reports is the number of reports.
func (o *reportOptions) check(p *printer, reports int) error {
	for _, f := range []struct {
		name  string
		files []string
	}{{"outcomes", o.outcomes}, {"chrome-trace", o.traces}} {
		if len(f.files) > reports {
			return usageErrorf("--%s: found %d files, expected at most one for each of %s", f.name, len(f.files), document.CountOf(reports, "report"))
		}
	}
	if o.html == "" && len(o.outcomes)+len(o.traces)+len(o.plan) > 0 && o.format != "markdown" {
		return usageErrorf("--outcomes, --chrome-trace and --plan are for a page\n  hint: add --html FILE")
	}
	if p.json && o.format != "text" {
		return usageErrorf("--json and --format %s exclude each other", o.format)
	}
	return errors.Join(usage.CheckWord("format", o.format, reportFormats...), p.checkOutput("html", o.html, "page"))
}

// showReports writes the page, and prints the reports in the format that was asked for. lines is what has to be said about them.
func (o *reportOptions) showReports(p *printer, names []string, reports []*formats.Report, lines []string) error {
	table := comparisonTable(names, reports)
	if o.html != "" || o.format == "markdown" {
		page, err := o.page(p, names, reports, table, lines)
		if err != nil {
			return err
		}
		if o.html != "" {
			if err := p.writePage(o.html, page); err != nil {
				return err
			}
		}
		if o.format == "markdown" {
			_, err := p.out.Write(page.Markdown())
			return err
		}
	}
	switch {
	case p.json:
		return p.PrintJSON(reports)
	case o.format == "csv":
		return pages.WriteCSV(p.out, figureRows(names, reports))
	}
	return p.PrintTable(table.Align, table.Header, table.Rows)
}

// page returns the page about reports.
func (o *reportOptions) page(p *printer, names []string, reports []*formats.Report, table pages.Table, lines []string) (*pages.Page, error) {
	plan, err := o.findPlan(p, names[0], reports[0])
	if err != nil {
		return nil, err
	}
	runs := make([]pages.Run, len(reports))
	for i, r := range reports {
		runs[i] = pages.Run{Name: runName(names, i), Report: r}
		if i < len(o.outcomes) {
			if runs[i].Outcomes, err = outcomes.ReadFile(o.outcomes[i]); err != nil {
				return nil, withCode(exitUsage, err)
			}
		}
		if i < len(o.traces) {
			if runs[i].Timeline, err = pages.ReadTimeline(o.traces[i]); err != nil {
				return nil, withCode(exitUsage, err)
			}
		}
	}
	return pages.ReportPage(plan, runs, table, lines)
}

// runName returns the name of a report on a page: that of its file or, if another file has the same, its path.
func runName(paths []string, i int) string {
	for k, other := range paths {
		if k != i && reportName(other) == reportName(paths[i]) {
			return paths[i]
		}
	}
	return reportName(paths[i])
}

// findPlan returns the plan that --plan names, else the plan of a report if its file is still the same. Otherwise it
// says that the page will not show what runs where, and returns nil.
func (o *reportOptions) findPlan(p *printer, name string, r *formats.Report) (*formats.Plan, error) {
	if o.plan != "" {
		return readPlan(o.plan)
	}
	if r.Plan != nil {
		path := filepath.Join(filepath.Dir(name), r.Plan.Path)
		if sum, err := document.Digest(path); err == nil && sum == r.Plan.SHA256 {
			return readPlan(path)
		}
	}
	p.PrintNote("note: the plan of %s is not where the report says, or has changed: the page does not show what runs where\n  hint: --plan names it", name)
	return nil, nil
}

// writePage writes a page to a file, or to stdout in place of the tables.
func (p *printer) writePage(path string, page *pages.Page) error {
	html, err := page.HTML()
	if err != nil {
		return err
	}
	if path == toStdout {
		_, err = p.out.Write(html)
		p.out = io.Discard
		return err
	}
	if _, err := document.WriteBytes(path, html, document.Force(true)); err != nil {
		return err
	}
	p.PrintNote("wrote %s", path)
	return nil
}

// planPage returns the page about a plan: what plan explain says, and what runs where.
func planPage(plan *formats.Plan) *pages.Page {
	lines := explain.PlanLines(plan)
	page := &pages.Page{Title: "Plan of kind " + plan.Kind, Sentence: lines[0], Lines: lines[1:], Sections: []pages.Section{pages.PlanSection(plan)}}
	for _, s := range []pages.Section{{Title: "Assumptions", Lines: plan.Assumptions}, {Title: "Warnings", Lines: plan.Warnings}} {
		if len(s.Lines) > 0 {
			page.Sections = append(page.Sections, s)
		}
	}
	return page
}

// writeDiffPage writes the page about the differences between two documents: with what runs where if they are plans, and with
// the pictures of plan report if they are reports.
func writeDiffPage(p *printer, path, a, b string, d *diff.Result) error {
	names := []string{a, b}
	page := &pages.Page{Title: runName(names, 0) + " against " + runName(names, 1), Sentence: d.Summary}
	switch {
	case d.Empty():
		page.Sentence = "There is no difference."
	case d.Summary == "":
		page.Sentence = document.CountOf(len(d.Changes), "difference") + "."
	}
	for i := range d.Changes {
		c := &d.Changes[i]
		if n := len(page.Sections); n == 0 || page.Sections[n-1].Title != c.Section {
			page.Sections = append(page.Sections, pages.Section{Title: c.Section})
		}
		s := &page.Sections[len(page.Sections)-1]
		s.Lines = append(s.Lines, c.String())
	}
	sections, err := comparedSections(names)
	if err != nil {
		return err
	}
	page.Sections = append(page.Sections, sections...)
	return p.writePage(path, page)
}

// comparedSections returns the sections about two documents of one kind themselves: none for profiles.
func comparedSections(paths []string) (sections []pages.Section, err error) {
	switch kindAt(paths[0]) {
	case formats.KindPlan:
		for i, path := range paths {
			plan, err := readPlan(path)
			if err != nil {
				return nil, err
			}
			s := pages.PlanSection(plan)
			s.Title += " in " + runName(paths, i)
			sections = append(sections, s)
		}
	case formats.KindReport:
		var runs []pages.Run
		var reports []*formats.Report
		for i, path := range paths {
			r, err := formats.ReadReport(path)
			if err != nil {
				return nil, withCode(exitUsage, err)
			}
			runs, reports = append(runs, pages.Run{Name: runName(paths, i), Report: r}), append(reports, r)
		}
		page, err := pages.ReportPage(nil, runs, comparisonTable(paths, reports), nil)
		if err != nil {
			return nil, err
		}
		sections = page.Sections
	}
	return sections, nil
}

// figureRows returns the figures of all reports.
func figureRows(names []string, reports []*formats.Report) []pages.Row {
	var rows []pages.Row
	for i, r := range reports {
		rows = append(rows, pages.Rows(runName(names, i), r)...)
	}
	return rows
}

// reportFigureNames returns the names of the figures that conditions may use.
func reportFigureNames() []string {
	var out []string
	for _, f := range pages.Figures {
		out = append(out, f.Name)
	}
	return out
}

// ofFirst stands in a condition before a figure of the first report.
const ofFirst = "first."

// metConditions returns a line for each --fail-if and each model of each report for which it holds.
func (o *reportOptions) metConditions(names []string, reports []*formats.Report) ([]string, error) {
	types := map[string]string{"report": "string", "model": "string", "class": "string"}
	for _, name := range reportFigureNames() {
		types[name], types[ofFirst+name] = "double", "double"
	}
	scope, err := condition.NewScope(types)
	if err != nil {
		return nil, err
	}
	var lines []string
	rows, firstRows := figureRows(names, reports), pages.Rows("", reports[0])
	for _, text := range o.conditions {
		test, err := scope.Compile(text, condition.Bool)
		if err != nil {
			return nil, usageErrorf("--fail-if %q: %w\n  hint: a number beside * or / needs a decimal point, as 2.0 * first.p99_ms; the names are in plan report --help", text, err)
		}
		for i := range rows {
			row := &rows[i]
			reference := document.First(firstRows, func(r *pages.Row) bool { return r.ModelClass == row.ModelClass })
			holds, err := test.Holds(lookupFigure(row, reference))
			if err != nil {
				return nil, usageErrorf("--fail-if: %s, %s: %w", row.Report, rowName(row), err)
			}
			if holds {
				lines = append(lines, fmt.Sprintf("FAIL %s: %s, %s", text, row.Report, rowName(row)))
			}
		}
	}
	return lines, nil
}

// rowName names the model of a row.
func rowName(r *pages.Row) string {
	if r.ModelClass == (formats.ModelClass{}) {
		return "all models"
	}
	return r.ModelClass.String()
}

// lookupFigure returns the values of names in a condition: the figures of a row, and those of the first report's, which may be nil.
func lookupFigure(row, first *pages.Row) condition.Lookup {
	return func(name string) (any, bool) {
		switch name {
		case "report":
			return row.Report, true
		case "model":
			return row.Model, true
		case "class":
			return row.Class, true
		}
		of := row
		if rest, isFirst := strings.CutPrefix(name, ofFirst); isFirst {
			of, name = first, rest
		}
		for _, f := range pages.Figures {
			if f.Name == name && of != nil {
				return f.ValueOf(of), true
			}
		}
		return nil, false
	}
}

// paintFailure returns a text in red if it says FAIL and goes to a terminal, unless NO_COLOR is set (no-color.org).
func paintFailure(w io.Writer, text string) string {
	if !strings.Contains(text, "FAIL") || terminalWidth(w) == 0 || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[31m" + text + "\x1b[0m"
}
