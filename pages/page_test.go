package pages_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/outcomes"
	"inferplan/pages"
)

var update = flag.Bool("update", false, "write the golden files anew")

var kinds = []string{"pool", "gear", "queue", "flow"}

// reportPage returns the page about the runs in a folder of testdata: a simulation with its outcomes and trace, and a run
// of which there is the report alone.
func reportPage(t *testing.T, kind string) *pages.Page {
	t.Helper()
	dir := filepath.Join("testdata", kind)
	plan, err := formats.ReadPlan(filepath.Join(dir, "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	runs := []pages.Run{{Name: "promised"}, {Name: "measured"}}
	var rows []pages.Row
	for i := range runs {
		if runs[i].Report, err = formats.ReadReport(filepath.Join(dir, runs[i].Name+".json")); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, pages.Rows(runs[i].Name, runs[i].Report)...)
	}
	if runs[0].Outcomes, err = outcomes.ReadFile(filepath.Join(dir, "promised.csv.gz")); err != nil {
		t.Fatal(err)
	}
	if runs[0].Timeline, err = pages.ReadTimeline(filepath.Join(dir, "promised.trace.gz")); err != nil {
		t.Fatal(err)
	}
	table := pages.Table{Align: "llr", Header: []string{"report", "model", "late"}}
	for _, r := range rows {
		table.Rows = append(table.Rows, []string{r.Report, r.Model, strings.Repeat("|", int(min(r.Late, 3)))})
	}
	p, err := pages.ReportPage(plan, runs, table, []string{"a <line> about the runs"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The pages of the four kinds are these, byte for byte, and load nothing.
func TestReportPages(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			p := reportPage(t, kind)
			page, err := p.HTML()
			if err != nil {
				t.Fatal(err)
			}
			checkOffline(t, page)
			for name, got := range map[string][]byte{"page.html": page, "page.md": p.Markdown()} {
				path := filepath.Join("testdata", kind, name)
				if *update {
					if err := os.WriteFile(path, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s (-update writes it anew):\n%s", name, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
				}
			}
		})
	}
}

// checkOffline fails where a page names anything to load.
func checkOffline(t *testing.T, page []byte) {
	t.Helper()
	if refs := references(page); len(refs) > 0 {
		t.Errorf("the page loads %q", refs)
	}
	if !bytes.Contains(page, []byte("default-src 'none'")) {
		t.Error("the page has no policy that forbids loading")
	}
}

// references returns what a page of HTML would load or link to.
func references(page []byte) (out []string) {
	tokens := html.NewTokenizer(bytes.NewReader(page))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			if errors.Is(tokens.Err(), io.EOF) {
				return out
			}
			return append(out, tokens.Err().Error())
		case html.TextToken:
			for _, word := range []string{"url(", "@import", "://"} {
				if strings.Contains(string(tokens.Raw()), word) {
					out = append(out, word)
				}
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			if token.Data == "script" || token.Data == "link" {
				out = append(out, token.Data)
			}
			for _, a := range token.Attr {
				if a.Key == "src" || a.Key == "href" || strings.HasSuffix(a.Key, ":href") || strings.Contains(a.Val, "url(") || strings.Contains(a.Val, "://") {
					out = append(out, a.Key+"="+a.Val)
				}
			}
		}
	}
}

func TestReferencesAreFound(t *testing.T) {
	for page, want := range map[string]int{
		`<img src=a.png>`: 1, `<style>@import "x"; a { background: url(x) }</style>`: 2, `<script>1</script>`: 1, `<svg><use xlink:href="#a"/></svg>`: 1,
		`<p style="background: url(x)">`: 1, `<p title="a">b</p>`: 0,
	} {
		if got := references([]byte(page)); len(got) != want {
			t.Errorf("%s: found %q, expected %d", page, got, want)
		}
	}
}

// A real browser shows the pages at two widths, bright and dark, without a request. make bench NAME=page sets it up.
func TestReportPagesInBrowser(t *testing.T) {
	dir := os.Getenv("INFERPLAN_CHROMIUM")
	if dir == "" {
		t.Skip("INFERPLAN_CHROMIUM is not set: make bench NAME=page runs this")
	}
	args := []string{"shots.mjs", t.TempDir()}
	for _, kind := range kinds {
		path, err := filepath.Abs(filepath.Join("testdata", kind, "page.html"))
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// A trace or a file of something else is refused with a reason.
func TestBrokenTracesAreRefused(t *testing.T) {
	for text, want := range map[string]string{"[]": "no batch", "{}": "trace.json", `[{"ph":1}]`: "ph", `[{"ph":"X","name":"a","pid":0,"tid":7,"ts":1,"dur":1}]`: "no batch"} {
		path := filepath.Join(t.TempDir(), "trace.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := pages.ReadTimeline(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, expected %q", text, err, want)
		}
	}
}

// What runs where is drawn with letters, too.
func TestDeviceLines(t *testing.T) {
	p, err := formats.ReadPlan("../testdata/compat/plan.v2.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"[AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA] 1 x L4",
		"  A encnet [2,4), 100 %, busy 47 %",
		"[AAAAAAAAAAAAAAAAAAAA....................] 1 x L4",
		"  A encnet [2,4), 50 %, busy 47 %",
		"[BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB] 2 x P4",
		"  B encnet [0,2), 100 %, busy 100 %",
		"[CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC] 1 x P4",
		"  C tiny, 100 %, busy 100 %",
	}
	if d := cmp.Diff(want, pages.DeviceLines(p)); d != "" {
		t.Error(d)
	}
}

// A browser breaks no line inside a flag, and what is no flag stays as it is, escaped.
func TestFlagsStandInOnePiece(t *testing.T) {
	for text, want := range map[string]string{
		"add --service s.json (-o FILE)": `add <span class="flag">--service</span> s.json (<span class="flag">-o</span> FILE)`,
		"'--drain-delay'":                `&#39;<span class="flag">--drain-delay</span>&#39;`,
		"a-b - c -2 % <-x>":              "a-b - c -2 % &lt;<span class=\"flag\">-x</span>&gt;",
	} {
		page := pages.Page{Title: "t", Sentence: text, Sections: []pages.Section{{Title: "s", Lines: []string{text}}}}
		written, err := page.HTML()
		if err != nil {
			t.Fatal(err)
		}
		for _, element := range []string{`<p class="sentence">` + want + "</p>", "<li>" + want + "</li>"} {
			if !strings.Contains(string(written), element) {
				t.Errorf("%s: no %s", text, element)
			}
		}
	}
}
