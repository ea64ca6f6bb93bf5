package executor

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"go.yaml.in/yaml/v3"
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

// wrongNames returns the metrics and labels of an expression that are not served.
func wrongNames(t *testing.T, text string, metrics metricTable) (out []string) {
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
						family = metrics.family(f.Value)
						if metrics[family] == nil {
							out = append(out, f.Value)
						}
						labels = append(labels, metrics.labels(family)...)
					} else if !slices.Contains(metrics.labels(family), f.Label) {
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
	metrics, list := servedMetrics(t, false), expressions(t)
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
