package executor

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/durable"
	"inferplan/executor/series"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
)

var recordGuards = flag.Bool("record-guards", false, "write docs/reference/metrics.md anew")

// servedMetric is a metric as clients of /metrics see it.
type servedMetric struct {
	help, form string   // form is counter, gauge or histogram; it is empty if no series was seen
	labels     []string // may repeat
	kinds      []string // kinds of plans that have it
}

// metricTable has the served metrics by their names.
type metricTable map[string]*servedMetric

// metric returns the row of a metric, and adds the kind of plan that has it.
func (m metricTable) metric(name, kind string) *servedMetric {
	if m[name] == nil {
		m[name] = &servedMetric{}
	}
	if row := m[name]; !slices.Contains(row.kinds, kind) {
		row.kinds = append(row.kinds, kind)
	}
	return m[name]
}

var (
	descriptor = regexp.MustCompile(`fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"),.* variableLabels: \{([^}]*)\}`)
	helpLine   = regexp.MustCompile(`(?m)^# HELP (inferplan_\S+) (.*)$`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (inferplan_\S+) (\S+)$`)
	sampleLine = regexp.MustCompile(`(?m)^(inferplan_[a-z_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z0-9_]+)="`)
)

// addExecutor adds the metrics of an executor: those that its registries describe, and those that have series.
func (m metricTable) addExecutor(t *testing.T, kind string, x *Executor) {
	t.Helper()
	descriptors := make(chan *prometheus.Desc, 1000)
	x.core.Load().Metrics.Registry.Describe(descriptors)
	x.metrics.registry.Describe(descriptors)
	x.metrics.recordSwitch(time.Second, time.Second)
	close(descriptors)
	for d := range descriptors {
		parts := descriptor.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("a descriptor that this test cannot read: %s", d)
		}
		row := m.metric(parts[1], kind)
		row.help, _ = strconv.Unquote(parts[2])
		row.labels = append(row.labels, strings.FieldsFunc(parts[3], func(r rune) bool { return r == ',' || r == ' ' })...)
	}

	// Collectors without descriptions are known by their series.
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		row := m.metric(family.GetName(), kind)
		row.help, row.form = family.GetHelp(), strings.ToLower(family.GetType().String())
		for _, label := range family.GetMetric()[0].GetLabel() {
			row.labels = append(row.labels, label.GetName())
		}
	}
}

// addPage adds the metrics of an answer of /metrics.
func (m metricTable) addPage(kind, text string) {
	for _, line := range helpLine.FindAllStringSubmatch(text, -1) {
		m.metric(line[1], kind).help = line[2]
	}
	for _, line := range typeLine.FindAllStringSubmatch(text, -1) {
		m.metric(line[1], kind).form = line[2]
	}
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		for _, label := range labelName.FindAllStringSubmatch(line[2], -1) {
			if row := m[m.family(line[1])]; row != nil && label[1] != "le" {
				row.labels = append(row.labels, label[1])
			}
		}
	}
}

// family returns the metric of a series: that of a histogram without the end of its series' names.
func (m metricTable) family(name string) string {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, end); ok && m[base] != nil {
			return base
		}
	}
	return name
}

// labels returns the labels of a metric; there are none of one that is not served.
func (m metricTable) labels(name string) []string {
	if m[name] == nil {
		return nil
	}
	return m[name].labels
}

// servedMetrics opens a plan of every kind and returns their metrics. With shared, whole servers of all kinds are asked, too,
// one of them a front end whose queue several machines share.
func servedMetrics(t *testing.T, shared bool) metricTable {
	t.Helper()
	out := metricTable{}
	out.addExecutor(t, "pool", open(t, onePlan(time.Millisecond, 2, 1, patient), replayOptions(true)))
	out.addExecutor(t, "pool", open(t, classPlan(patient, 2*patient), replayOptions(true)))
	out.addExecutor(t, "gear", open(t, gearPlan(1, time.Millisecond, 3*time.Millisecond), replayOptions(true)))
	out.addExecutor(t, "flow", open(t, diamondPlan(), replayOptions(true)))
	out.addExecutor(t, "flow", open(t, split(patient, "feas", time.Millisecond, time.Millisecond), replayOptions(true)))
	out.addExecutor(t, "queue", openDiscoveredDesk(t, 1, 1, fake.Options{Models: []string{"a"}, Slots: 1}).x)

	// Queues of language models are served whole, because the front end has metrics, too.
	server, err := fake.Start(fake.Options{Models: []string{"a"}, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	path := filepath.Join(t.TempDir(), "plan.json")
	if _, err := document.WriteFile(path, completePlan(queuePlan(1, 1, time.Minute, "a"))); err != nil {
		t.Fatal(err)
	}
	s := serveText(t, path, filepath.Join(t.TempDir(), "store"), server)
	post(t, s.url+"/v1/completions", `{"model":"a","prompt":"1","max_tokens":2}`)
	post(t, s.url+"/v1/embeddings", `{"model":"a","input":"1"}`)
	out.addPage("queue", getText(t, s.metrics+"/metrics"))
	if shared {
		for kind, plan := range map[string]*formats.Plan{"pool": onePlan(time.Millisecond, 2, 1, patient), "gear": gearPlan(1, time.Millisecond, 3*time.Millisecond), "flow": diamondPlan()} {
			served, _ := serve(t, plan, replayOptions(true))
			out.addPage(kind, getText(t, "http://"+served.Metrics+"/metrics"))
		}
		out.addPage("queue", sharedMetrics(t))
	}
	return out
}

// sharedMetrics returns the metrics page of a front end whose queue several machines share.
func sharedMetrics(t *testing.T) string {
	t.Helper()
	f := openFleet(t, queuePlan(1, 1, time.Minute, "a"), fake.Options{Models: []string{"a"}, Slots: 1})
	ctx, cancel := context.WithCancel(context.Background())
	addresses, ended := make(chan Addresses, 1), make(chan error, 1)
	o := ServeOptions{Plan: f.plan, HTTP: "127.0.0.1:0", GRPC: AddressOff, Metrics: "127.0.0.1:0", DrainTimeout: 200 * time.Millisecond, OnReady: func(a Addresses) { addresses <- a }}
	o.Log, o.SilenceTimeout, o.Queue.OpenShared = f.log, 10*time.Second, func(context.Context) (durable.Shared, error) { return f.share() }
	go func() {
		_, err := Serve(ctx, o)
		ended <- err
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case a := <-addresses:
		return getText(t, "http://"+a.Metrics+"/metrics")
	case err := <-ended:
		t.Fatal(err)
		return ""
	}
}

// reference writes the page of all metrics.
func (m metricTable) reference() []byte {
	var out bytes.Buffer
	out.WriteString("# Metrics\n\nEvery Prometheus metric of `plan serve`, at `GET /metrics` of the address `--metrics`. Go's own metrics of the process (`go_`, `process_`) are served as well.\n" +
		"A metric with the label `model` also has the label `class` if the plan has SLO classes. Made by `go test ./executor -run TestMetricsReference -record-guards`.\n\n" +
		"| metric | type | labels | plans | meaning |\n|---|---|---|---|---|\n")
	order := []string{"pool", "gear", "flow", "queue"}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		row := m[name]
		labels := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(row.labels))), func(l string) bool { return l == "class" && slices.Contains(row.labels, "model") })
		kinds := strings.Join(slices.DeleteFunc(slices.Clone(order), func(kind string) bool { return !slices.Contains(row.kinds, kind) }), ", ")
		if len(row.kinds) == len(order) {
			kinds = "all"
		}
		text := strings.Join(labels, "`, `")
		if text != "" {
			text = "`" + text + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", name, row.form, text, kinds, row.help)
	}
	return out.Bytes()
}

// docs/reference/metrics.md has every metric that plans of all kinds serve.
func TestMetricsReference(t *testing.T) {
	path := filepath.Join("..", "docs", "reference", "metrics.md")
	metrics := servedMetrics(t, true)
	for name, row := range metrics {
		switch { // without series the name says the type, but not of a histogram
		case row.form != "" || strings.HasSuffix(name, "_seconds") || strings.HasSuffix(name, "_size"):
		case strings.HasSuffix(name, "_total"):
			row.form = "counter"
		default:
			row.form = "gauge"
		}
		if row.form == "" || row.help == "" {
			t.Errorf("%s: type %q, help %q: expected both", name, row.form, row.help)
		}
	}
	want := metrics.reference()
	if *recordGuards {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s does not have the metrics that are served: make it anew with -record-guards", path)
	}

	// A metric that no plan above registers is found in the code.
	names := namedMetrics(t)
	if len(names) < 40 {
		t.Fatalf("%d names of metrics found in the code: it is not read", len(names))
	}
	for _, name := range names {
		if !bytes.Contains(have, []byte("| `"+name+"` |")) {
			t.Errorf("%s is in the code and not in %s", name, path)
		}
	}
}

// namedMetrics returns the names of metrics that the code of this folder and those below it has: what is added to
// series.Prefix, and the first arguments of functions that add their first parameter to it.
func namedMetrics(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}

		// Literals are names. Functions with a parameter in their place are remembered.
		named := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == 1 {
				if f, ok := assign.Rhs[0].(*ast.FuncLit); ok && len(prefixed(f)) > 0 {
					named[assign.Lhs[0].(*ast.Ident).Name] = true
				}
			}
			if f, ok := n.(*ast.FuncDecl); ok {
				for _, operand := range prefixed(f) {
					if literal, ok := operand.(*ast.BasicLit); ok {
						name, _ := strconv.Unquote(literal.Value)
						names = append(names, series.Prefix+name)
					}
				}
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, isName := call.Fun.(*ast.Ident)
			literal, isLiteral := call.Args[0].(*ast.BasicLit)
			if isName && isLiteral && named[f.Name] {
				name, _ := strconv.Unquote(literal.Value)
				names = append(names, series.Prefix+name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// prefixed returns what a piece of code adds to series.Prefix.
func prefixed(code ast.Node) (operands []ast.Expr) {
	ast.Inspect(code, func(n ast.Node) bool {
		sum, ok := n.(*ast.BinaryExpr)
		if !ok {
			return true
		}
		if prefix, ok := sum.X.(*ast.SelectorExpr); ok && prefix.Sel.Name == "Prefix" {
			operands = append(operands, sum.Y)
		}
		return true
	})
	return operands
}
