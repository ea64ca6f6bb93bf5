package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

type checkOptions struct {
	against                    string
	profile, cluster, workload string
	regression                 string
	format                     string
	noSolve                    bool
}

func newCheckCommand(g *globals) *cobra.Command {
	o := &checkOptions{}
	var metrics []string
	for _, m := range check.Metrics() {
		metrics = append(metrics, fmt.Sprintf("  %-6s %g %%  %s", m.Name, 100*m.Tolerance, m.Help))
	}
	cmd := &cobra.Command{
		Use:   "check [plan.json]",
		Short: "Does the plan still hold? A gate for CI",
		Long: `Validate a plan from first principles against today's profile, cluster and workload,
plan again with its own options, and compare with tolerances.

Figures and default tolerances (a worsening beyond them fails):
` + strings.Join(metrics, "\n") + `

Exit codes: 0 the gate passes; 1 it fails, and says by what; 2 bad input.`,
		Example: `  plan check
  plan check plan.json --against old.json --max-regression rps=1%,p99=2%,cost=1%
  plan check plan.json --format json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if g.json {
				o.format = "json"
			}
			return runCheck(cmd.Context(), newPrinter(cmd, g), o, planArgument(args))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.against, "against", "", "plan that was promised (default: this file in git HEAD, else the plan itself)")
	f.StringVar(&o.profile, "profile", "", "today's profile (default: the plan's input)")
	f.StringVar(&o.cluster, "cluster", "", "today's cluster (default: the plan's input, else the cluster inside the plan)")
	f.StringVar(&o.workload, "workload", "", "today's workload (default: the plan's input, else the targets inside the plan)")
	f.StringVar(&o.regression, "max-regression", "", "tolerances, such as rps=1%,p99=2%,cost=1%")
	f.StringVar(&o.format, "format", "text", "text, json, junit, github or markdown")
	f.BoolVar(&o.noSolve, "no-solve", false, "only validate; do not plan again")
	complete(cmd, "format", "text", "json", "junit", "github", "markdown")
	return cmd
}

func runCheck(ctx context.Context, p *printer, o *checkOptions, path string) error {
	write, ok := gateFormats[o.format]
	if !ok {
		return usageErrorf("--format %q: expected text, json, junit, github or markdown", o.format)
	}
	tolerances, err := check.ParseTolerances(o.regression)
	if err != nil {
		return withCode(exitUsage, err)
	}
	plan, err := readPlan(path)
	if err != nil {
		return withCode(exitUsage, err)
	}
	in := check.GateInput{Plan: plan, Tolerances: tolerances}
	if !o.noSolve {
		in.Solver = highs.Solver{}
	}
	if err := o.today(&in, path); err != nil {
		return err
	}
	if err := o.promised(ctx, p, &in, path); err != nil {
		return err
	}
	heed(ctx)
	bar := p.meter(100, "planning again")
	in.Progress = func(u planner.Progress) { bar.set(int64(100*u.Fraction), 0, u.Phase) }
	res, err := check.Gate(ctx, in)
	bar.finish()
	if errors.Is(err, context.Canceled) {
		return &exitError{exitInterrupted, errors.New("interrupted; there is no verdict")}
	}
	if err != nil {
		return err
	}
	if err := write(p, res); err != nil {
		return err
	}
	if res.Verdict != check.Pass {
		return &exitError{code: exitGate}
	}
	return nil
}

// today reads today's documents: what the flags name, else the inputs that the
// plan names.
func (o *checkOptions) today(in *check.GateInput, planPath string) error {
	find := func(role, flag string) string {
		if flag != "" {
			return flag
		}
		for _, i := range in.Plan.Inputs {
			if i.Role == role {
				return filepath.Join(filepath.Dir(planPath), filepath.FromSlash(i.Path))
			}
		}
		return ""
	}
	path := find("profile", o.profile)
	if path == "" {
		return usageErrorf("%s names no profile; give today's with --profile", planPath)
	}
	r := &reading{of: planPath}
	if err := r.profile(path); err != nil {
		return err
	}
	if path = find("cluster", o.cluster); path != "" {
		if err := r.cluster(path); err != nil {
			return err
		}
	}
	if path = find("workload", o.workload); path != "" {
		if err := r.workload(path); err != nil {
			return err
		}
	}
	in.Today = r.Inputs
	return nil
}

// promised finds the plan to compare with, and the profile it was made from.
func (o *checkOptions) promised(ctx context.Context, p *printer, in *check.GateInput, planPath string) error {
	in.Against = in.Plan
	from := planPath
	if o.against != "" {
		against, err := readPlan(o.against)
		if err != nil {
			return withCode(exitUsage, err)
		}
		in.Against, from = against, o.against
	} else if data, ok := inHead(ctx, planPath); ok {
		against, err := formats.DecodePlan(data, "HEAD:"+planPath)
		if err != nil {
			return withCode(exitUsage, fmt.Errorf("the plan in git HEAD: %w", err))
		}
		in.Against = against
	} else {
		p.assumed([]string{"against: the plan itself (it is not in git HEAD)"})
	}
	for _, i := range in.Against.Inputs {
		if i.Role != "profile" {
			continue
		}
		path := filepath.Join(filepath.Dir(from), filepath.FromSlash(i.Path))
		data, err := os.ReadFile(path)
		if err != nil || digest(data) != i.SHA256 {
			if data, _ = inHead(ctx, path); digest(data) != i.SHA256 {
				return nil // gone: the plan's own figures stand in for it
			}
		}
		if in.OldProfile, err = formats.DecodeProfile(data, path); err != nil {
			return withCode(exitUsage, err)
		}
	}
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// inHead returns a file's content in git HEAD; false outside a repository, and
// for a file that is not there.
func inHead(ctx context.Context, path string) ([]byte, bool) {
	cmd := exec.CommandContext(ctx, "git", "show", "HEAD:./"+filepath.Base(path))
	cmd.Dir = filepath.Dir(path)
	out, err := cmd.Output()
	return out, err == nil
}

// gateFormats write a verdict. More slot in here.
var gateFormats = map[string]func(*printer, *check.Result) error{
	"text":     gateText,
	"json":     func(p *printer, r *check.Result) error { return p.document(r) },
	"junit":    gateJUnit,
	"github":   gateGitHub,
	"markdown": gateMarkdown,
}

func comparisonRows(r *check.Result) [][]string {
	var rows [][]string
	for _, c := range r.Metrics {
		state := "ok"
		if c.Failed {
			state = "FAIL"
		}
		rows = append(rows, []string{state, c.Metric, c.What, fmt.Sprintf("%.6g", c.Old), fmt.Sprintf("%.6g", c.New), c.Unit,
			fmt.Sprintf("%+.2f %%", 100*c.Worse), fmt.Sprintf("%g %%", 100*c.Tolerance)})
	}
	return rows
}

func gateText(p *printer, r *check.Result) error {
	if err := p.table("lllrrlrr", []string{"", "figure", "of", "promised", "today", "unit", "worse", "allowed"}, comparisonRows(r)); err != nil {
		return err
	}
	for _, f := range r.Findings {
		fmt.Fprintln(p.out, f)
	}
	for _, b := range r.Blocks {
		fmt.Fprintln(p.out, "slower:", b)
	}
	for _, n := range r.Notes {
		p.note("note: %s", n)
	}
	fmt.Fprintln(p.out, "verdict:", r.Verdict)
	return nil
}

func gateMarkdown(p *printer, r *check.Result) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "**plan check: %s**\n\n| | figure | of | promised | today | unit | worse | allowed |\n|---|---|---|---:|---:|---|---:|---:|\n", r.Verdict)
	cell := strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`")
	for _, row := range comparisonRows(r) {
		for i := range row {
			row[i] = cell.Replace(row[i])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n- %s", f)
	}
	for _, x := range r.Blocks {
		fmt.Fprintf(&b, "\n- slower: %s", x)
	}
	b.WriteByte('\n')
	_, err := p.out.Write(b.Bytes())
	return err
}

// gateGitHub writes workflow commands, which show up as annotations.
func gateGitHub(p *printer, r *check.Result) error {
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	for _, f := range r.Findings {
		level := "error"
		if f.Severity != check.Error {
			level = "warning"
		}
		fmt.Fprintf(p.out, "::%s title=plan check::%s\n", level, escape.Replace(f.String()))
	}
	for _, c := range r.Metrics {
		if c.Failed {
			fmt.Fprintf(p.out, "::error title=plan check::%s\n", escape.Replace(fmt.Sprintf("%s of %s: %.6g %s, was %.6g (%+.2f %%, allowed %g %%)", c.Metric, c.What, c.New, c.Unit, c.Old, 100*c.Worse, 100*c.Tolerance)))
		}
	}
	for _, b := range r.Blocks {
		fmt.Fprintf(p.out, "::notice title=plan check::%s\n", escape.Replace("slower: "+b.String()))
	}
	fmt.Fprintln(p.out, "verdict:", r.Verdict)
	return nil
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
}

func gateJUnit(p *printer, r *check.Result) error {
	s := junitSuite{Name: "plan check"}
	add := func(class, name, failure string) {
		c := junitCase{Class: class, Name: name}
		if failure != "" {
			c.Failure = &junitFailure{failure}
			s.Failures++
		}
		s.Cases = append(s.Cases, c)
		s.Tests++
	}
	for _, c := range r.Metrics {
		failure := ""
		if c.Failed {
			failure = fmt.Sprintf("%.6g %s, was %.6g (%+.2f %%, allowed %g %%)", c.New, c.Unit, c.Old, 100*c.Worse, 100*c.Tolerance)
		}
		add(c.Metric, c.What, failure)
	}
	for _, f := range r.Findings {
		if f.Severity == check.Error {
			add(f.Constraint, f.Where, f.Message)
		}
	}
	out, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return errors.Join(errors.New("writing JUnit XML"), err)
	}
	_, err = fmt.Fprintf(p.out, "%s%s\n", xml.Header, out)
	return err
}
