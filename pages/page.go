package pages

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"inferplan/pages/picture"
)

// Page holds the content of one page.
type Page struct {
	Title    string
	Sentence string // what the page says, in one sentence
	Lines    []string
	Sections []Section

	// Refresh is the number of seconds after which a browser without scripts loads the page again; 0 for a page that stays.
	Refresh int
	// Script is a script that the page runs, if its SecurityPolicy allows it.
	Script template.JS
	// SecurityPolicy is a Content-Security-Policy; empty for that of a page that loads and runs nothing.
	SecurityPolicy string
}

// Section is a part of a page. What it does not have is empty.
type Section struct {
	Title    string
	Text     string
	Lines    []string
	Table    *Table
	Pictures []Picture
	Devices  []DeviceRow
}

// Table is a table of texts. Align has a letter per column: 'r' aligns to the right.
type Table struct {
	Align  string
	Header []string
	Rows   [][]string
}

// Picture is a picture with its legend.
type Picture struct {
	Title  string
	SVG    template.HTML
	Legend []string // names in the order of the colours; none for a picture of one line
}

// newPicture draws a figure. It returns no picture for a figure without points.
func newPicture(title string, f picture.Figure) ([]Picture, error) {
	hasPoints := false
	for _, panel := range f.Panels {
		for _, line := range panel.Lines {
			hasPoints = hasPoints || len(line.Points) > 0
		}
	}
	if !hasPoints {
		return nil, nil
	}
	svg, err := f.Inline()
	if err != nil {
		return nil, err
	}
	// The figure escapes every text that it writes.
	return []Picture{{Title: title, SVG: template.HTML(svg), Legend: f.Names()}}, nil
}

// longCell is the length from which on a cell of a table is broken into lines.
const longCell = 80

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"isRight": (*Table).isRight,
	"isLong":  func(cell string) bool { return len(cell) > longCell },
	"colour":  func(i int) int { return i % len(picture.Colours()) },
	"percent": func(share float64) string { return fmt.Sprintf("%.4g", 100*share) },
	"colours": picture.Colours,
	"text":    flagsInOnePiece,
}).Parse(pageSource))

// flagPattern matches a flag of the command line in text that is escaped for HTML, and what stands before it.
var flagPattern = regexp.MustCompile(`(^|[\s(;])(--?[a-z][a-z-]*)`)

// flagsInOnePiece returns a text for HTML, in which a browser breaks no line after the hyphens of a flag.
func flagsInOnePiece(text string) template.HTML {
	return template.HTML(flagPattern.ReplaceAllString(template.HTMLEscapeString(text), `$1<span class="flag">$2</span>`))
}

// isRight reports whether a column is aligned to the right.
func (t *Table) isRight(column int) bool { return column < len(t.Align) && t.Align[column] == 'r' }

// closedPolicy is the Content-Security-Policy of a page that loads and runs nothing.
const closedPolicy = "default-src 'none'; style-src 'unsafe-inline'"

// PolicyElement returns the element of the page's head with its Content-Security-Policy, which has no character that HTML would
// take for something else.
func (p *Page) PolicyElement() template.HTML {
	return template.HTML(`<meta http-equiv="Content-Security-Policy" content="` + cmp.Or(p.SecurityPolicy, closedPolicy) + `">`)
}

// HTML returns the page as one file that loads nothing: a browser that shows it sends no request, unless the page has a script
// that does.
func (p *Page) HTML() ([]byte, error) {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("writing a page: %w", err)
	}
	return out.Bytes(), nil
}

// Markdown returns the page without its pictures as Markdown.
func (p *Page) Markdown() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n\n%s\n", markdown.Replace(p.Title), markdown.Replace(p.Sentence))
	writeList(&out, p.Lines)
	for i := range p.Sections {
		s := &p.Sections[i]
		if s.Text == "" && len(s.Lines) == 0 && s.Table == nil && len(s.Devices) == 0 {
			continue // pictures alone
		}
		fmt.Fprintf(&out, "\n## %s\n", markdown.Replace(s.Title))
		if s.Text != "" {
			fmt.Fprintf(&out, "\n%s\n", markdown.Replace(s.Text))
		}
		writeList(&out, s.Lines)
		var rows []string
		for k := range s.Devices {
			rows = append(rows, s.Devices[k].String())
		}
		writeList(&out, rows)
		if s.Table != nil {
			out.WriteByte('\n')
			s.Table.writeMarkdown(&out)
		}
	}
	return out.Bytes()
}

// writeList writes lines as a list of Markdown.
func writeList(out *bytes.Buffer, lines []string) {
	if len(lines) > 0 {
		out.WriteByte('\n')
	}
	for _, line := range lines {
		fmt.Fprintf(out, "- %s\n", markdown.Replace(strings.TrimSpace(line)))
	}
}

var markdown = strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "\n", " ")

// writeMarkdown writes the table as Markdown.
func (t *Table) writeMarkdown(out *bytes.Buffer) {
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---"
		if t.isRight(i) {
			rule[i] = "---:"
		}
	}
	for i, row := range append([][]string{t.Header, rule}, t.Rows...) {
		for _, cell := range row {
			if i != 1 {
				cell = markdown.Replace(cell)
			}
			fmt.Fprintf(out, "| %s ", cell)
		}
		out.WriteString("|\n")
	}
}
