package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"inferplan/planner/check"
)

// gateFormatNames are the formats in the order in which help lists them.
var gateFormatNames = []string{"text", "json", "junit", "github", "gitlab", "markdown"}

// gateFormats write a verdict on the plan at a path, one function per format.
var gateFormats = map[string]func(p *printer, r *check.Result, path string) error{
	"text":     gateText,
	"json":     func(p *printer, r *check.Result, _ string) error { return p.PrintJSON(r) },
	"junit":    gateJUnit,
	"github":   gateGitHub,
	"gitlab":   gateGitLab,
	"markdown": gateMarkdown,
}

// comparisonRows returns a table row for each compared figure: whether it passes, its name and subject, the promised
// and the new value, how much worse it is, its tolerance, and by how much it may differ by chance (p, the probability
// of such a difference, or ± a share).
func comparisonRows(r *check.Result) [][]string {
	var rows [][]string
	for _, c := range r.Metrics {
		state := "ok"
		if c.Failed {
			state = "FAIL"
		}
		chance := ""
		switch {
		case c.P != nil:
			chance = fmt.Sprintf("p %.3f", *c.P)
		case c.Noise > 0:
			chance = fmt.Sprintf("± %.1f %%", 100*c.Noise)
		}
		oldText, newText, unit := c.FormattedValues()
		rows = append(rows, []string{state, c.Metric, c.Subject, oldText, newText, unit,
			fmt.Sprintf("%+.2f %%", 100*c.WorseBy), fmt.Sprintf("%g %%", 100*c.Tolerance), chance})
	}
	return rows
}

var comparisonColumns = []string{"", "figure", "of", "promised", "today", "unit", "worse", "allowed", "chance"}

// gateText writes the verdict of plan check as text: the table of figures, explanations, and the verdict.
func gateText(p *printer, r *check.Result, _ string) error {
	rows := comparisonRows(r)
	for _, row := range rows {
		row[0] = paintFailure(p.out, row[0])
	}
	if err := p.PrintTable("lllrrlrrr", comparisonColumns, rows); err != nil {
		return err
	}
	p.printLines(r.Explanation())
	fmt.Fprintln(p.out, "verdict:", r.Verdict)
	return nil
}

func gateMarkdown(p *printer, r *check.Result, _ string) error {
	_, err := p.out.Write(markdownVerdict(r))
	return err
}

// markdownVerdict returns the verdict of plan check as Markdown, for the summary of a CI step.
func markdownVerdict(r *check.Result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "**plan check: %s**\n\n| %s |\n|---|---|---|---:|---:|---|---:|---:|---:|\n", r.Verdict, strings.Join(comparisonColumns, " | "))
	cell := strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`")
	for _, row := range comparisonRows(r) {
		for i := range row {
			row[i] = cell.Replace(row[i])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, line := range r.Explanation() {
		fmt.Fprintf(&b, "\n- %s", line)
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// annotation is one line of a verdict that a CI system shows beside the code.
type annotation struct {
	level string // error, warning, notice
	name  string // the name of the constraint or the figure
	text  string
}

// annotationsOf returns the annotations of a verdict, failures first.
func annotationsOf(r *check.Result) []annotation {
	var failures, warnings []annotation
	for _, f := range r.Findings {
		if f.Severity == check.Error {
			failures = append(failures, annotation{"error", f.Constraint, f.String()})
		} else {
			warnings = append(warnings, annotation{"warning", f.Constraint, f.String()})
		}
	}
	for i := range r.Metrics {
		if c := &r.Metrics[i]; c.Failed {
			failures = append(failures, annotation{"error", c.Metric, c.FailureText()})
		}
	}
	out := append(failures, warnings...)
	for _, line := range r.Advice {
		out = append(out, annotation{"notice", "advice", line})
	}
	return out
}

// maxShownPerLevel is the number of annotations of a level that GitHub shows for a step.
const maxShownPerLevel = 10

// gateGitHub writes workflow commands, which GitHub shows as annotations, and adds the whole verdict to the
// summary of the step.
func gateGitHub(p *printer, r *check.Result, path string) error {
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	// GitHub shows a limited number of annotations of each level. The others are only counted.
	shownByLevel, notShown := map[string]int{}, 0
	for _, x := range annotationsOf(r) {
		if shownByLevel[x.level]++; shownByLevel[x.level] > maxShownPerLevel {
			notShown++
			continue
		}
		fmt.Fprintf(p.out, "::%s file=%s,title=plan check::%s\n", x.level, property.Replace(filepath.ToSlash(path)), escape.Replace(x.text))
	}
	if notShown > 0 {
		fmt.Fprintf(p.out, "%d more are in the summary of the step\n", notShown)
	}
	if summary := os.Getenv("GITHUB_STEP_SUMMARY"); summary != "" {
		if err := appendFile(summary, markdownVerdict(r)); err != nil {
			return err
		}
	}
	fmt.Fprintln(p.out, "verdict:", r.Verdict)
	return nil
}

// appendFile appends data to the file that GitHub shows as the summary of a step.
func appendFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("the summary of the step: %w", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// codeQuality is one entry of a GitLab Code Quality report.
type codeQuality struct {
	Description string `json:"description"`
	CheckName   string `json:"check_name"`
	Fingerprint string `json:"fingerprint"`
	Severity    string `json:"severity"`
	Location    struct {
		Path  string `json:"path"`
		Lines struct {
			Begin int `json:"begin"`
		} `json:"lines"`
	} `json:"location"`
}

// gateGitLab writes failures, warnings and advice as a code quality report in JSON, which GitLab shows beside the
// plan's file. The fingerprint is the same in every run that finds the same.
func gateGitLab(p *printer, r *check.Result, path string) error {
	severity := map[string]string{"error": "major", "warning": "minor", "notice": "info"}
	list := []codeQuality{}
	for _, x := range annotationsOf(r) {
		e := codeQuality{Description: x.text, CheckName: "plan check: " + x.name, Severity: severity[x.level]}
		e.Fingerprint = fmt.Sprintf("%x", sha256.Sum256([]byte(path+"\n"+x.name+"\n"+x.text)))
		e.Location.Path, e.Location.Lines.Begin = filepath.ToSlash(path), 1
		list = append(list, e)
	}
	out, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the code quality report: %w", err)
	}
	_, err = fmt.Fprintf(p.out, "%s\n", out)
	return err
}

type junitSuite struct {
	XMLName   xml.Name    `xml:"testsuite"`
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Cases     []junitCase `xml:"testcase"`
	SystemOut string      `xml:"system-out,omitempty"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
}

// gateJUnit writes JUnit XML with a test case for each figure and for each finding that is an error.
func gateJUnit(p *printer, r *check.Result, _ string) error {
	s := junitSuite{Name: "plan check", SystemOut: strings.Join(r.Advice, "\n")}
	add := func(class, name, failure string) {
		c := junitCase{Class: class, Name: name}
		if failure != "" {
			c.Failure = &junitFailure{failure}
			s.Failures++
		}
		s.Cases = append(s.Cases, c)
		s.Tests++
	}
	for i := range r.Metrics {
		c, failure := &r.Metrics[i], ""
		if c.Failed {
			failure = c.FailureText()
		}
		add(c.Metric, c.Subject, failure)
	}
	for _, f := range r.Findings {
		if f.Severity == check.Error {
			add(f.Constraint, f.Path, f.Message)
		}
	}
	out, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return errors.Join(errors.New("writing JUnit XML"), err)
	}
	_, err = fmt.Fprintf(p.out, "%s%s\n", xml.Header, out)
	return err
}
