package executor

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
)

// expressions returns the expressions of PromQL in the dashboard and the alert rules, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert string            `yaml:"alert"`
				Expr  string            `yaml:"expr"`
				Notes map[string]string `yaml:"annotations"`
			}
		}
	}
	for name, decode := range map[string]func([]byte) error{
		"dashboard.json": func(b []byte) error { return json.Unmarshal(b, &dashboard) },
		"alerts.yaml":    func(b []byte) error { return yaml.Unmarshal(b, &rules) },
	} {
		b, err := os.ReadFile(filepath.Join("../examples/grafana", name))
		if err == nil {
			err = decode(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out["panel "+p.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	for _, a := range dashboard.Annotations.List {
		out["annotation "+a.Name] = a.Expr
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			out["alert "+r.Alert] = r.Expr
			if r.Notes["summary"] == "" {
				t.Errorf("alert %s has no summary", r.Alert)
			}
		}
	}
	return out
}

var (
	descriptor = regexp.MustCompile(`fqName: "([^"]+)".* variableLabels: \{([^}]*)\}`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (inferplan_\S+)`)
	sampleLine = regexp.MustCompile(`(?m)^(inferplan_[a-z_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z0-9_]+)="`)
)

// servedMetrics returns the labels of every metric of served plans of all kinds.
func servedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	descs := make(chan *prometheus.Desc, 1000)
	var gathered []*dto.MetricFamily // of collectors that do not describe their metrics
	for _, x := range []*Executor{
		open(t, onePlan(time.Millisecond, 2, 1, patient), replayOptions(true)),
		open(t, gearPlan(1, time.Millisecond, 3*time.Millisecond), replayOptions(true)),
		open(t, diamondPlan(), replayOptions(true)),
		open(t, split(patient, "feas", time.Millisecond, time.Millisecond), replayOptions(true)),
	} {
		x.core.Load().Metrics.Registry.Describe(descs)
		x.metrics.registry.Describe(descs)
		families, err := x.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		gathered = append(gathered, families...)
	}
	close(descs)
	for d := range descs {
		m := descriptor.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a descriptor that this test cannot read: %s", d)
		}
		out[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
	}

	for _, family := range gathered {
		for _, label := range family.GetMetric()[0].GetLabel() {
			out[family.GetName()] = append(out[family.GetName()], label.GetName())
		}
	}

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
	text := getText(t, s.metrics+"/metrics")
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		out[m[1]] = append(out[m[1]], "")
	}
	for _, m := range sampleLine.FindAllStringSubmatch(text, -1) {
		for _, label := range labelName.FindAllStringSubmatch(m[2], -1) {
			out[familyOf(m[1], out)] = append(out[familyOf(m[1], out)], label[1])
		}
	}
	return out
}

// familyOf returns the metric of a series: that of a histogram without the end of its series' names.
func familyOf(name string, metrics map[string][]string) string {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, end); ok && metrics[base] != nil {
			return base
		}
	}
	return name
}

// wrongNames returns the metrics and labels of an expression that are not served.
func wrongNames(t *testing.T, text string, metrics map[string][]string) (out []string) {
	t.Helper()
	e, err := metricsql.Parse(text)
	if err != nil {
		return []string{err.Error()}
	}
	var labels, grouped []string
	metricsql.VisitAll(e, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			for _, filters := range e.LabelFilterss {
				family := ""
				for _, f := range filters {
					if f.Label == "__name__" {
						family = familyOf(f.Value, metrics)
						if metrics[family] == nil {
							out = append(out, f.Value)
						}
						labels = append(labels, metrics[family]...)
					} else if !slices.Contains(metrics[family], f.Label) {
						out = append(out, family+" "+f.Label)
					}
				}
			}
		case *metricsql.AggrFuncExpr:
			grouped = append(grouped, e.Modifier.Args...)
		}
	})
	for _, label := range grouped {
		if label != "le" && !slices.Contains(labels, label) {
			out = append(out, "by "+label)
		}
	}
	return out
}

// Every metric and label of the dashboard and the alert rules is served.
func TestDashboardAndAlertsNameServedMetrics(t *testing.T) {
	metrics, list := servedMetrics(t), expressions(t)
	if len(list) < 30 {
		t.Fatalf("%d expressions found: the files are not read", len(list))
	}
	for _, place := range slices.Sorted(maps.Keys(list)) {
		if wrong := wrongNames(t, list[place], metrics); len(wrong) > 0 {
			t.Errorf("%s: %s: not served: %q", place, list[place], wrong)
		}
	}
	for text, want := range map[string]int{
		`rate(inferplan_requests_total{outcome="late"}[5m])`: 0, `inferplan_request_total`: 1, `inferplan_requests_total{outcme="late"}`: 1,
		`sum by (modle) (inferplan_requests_total)`: 1, `sum(`: 1,
	} {
		if got := wrongNames(t, text, metrics); len(got) != want {
			t.Errorf("%s: found %q, expected %d", text, got, want)
		}
	}
}
