package pages

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"inferplan/formats/document"
	"inferplan/formats/served"
	"inferplan/pages/picture"
)

// Bounds of the page of a server. What goes beyond is summed up, so that its size does not grow with the plan.
const (
	liveModels  = 30 // rows of models
	liveDevices = 24 // devices with a bar of their own
	liveRows    = 40 // rows of a table of the plan's kind
	liveKinds   = 6  // kinds of devices with a line over time
)

//go:embed live.js
var liveUpdates string

// liveScript is the script of the page of a server: it updates the page after every served.Interval. An update that takes longer has failed.
var liveScript = fmt.Sprintf("const interval = %d;\n%s", served.Interval.Milliseconds(), liveUpdates)

// LiveSecurityPolicy is the Content-Security-Policy of the page of a server: it runs one script, which asks its own server alone.
var LiveSecurityPolicy = func() string {
	hash := sha256.Sum256([]byte(liveScript))
	return "default-src 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}()

// LiveHTML returns the page of a server.
func LiveHTML(s *served.State) ([]byte, error) {
	p, err := LivePage(s)
	if err != nil {
		return nil, err
	}
	return p.HTML()
}

// LivePage returns the page of a server: its rates against what was promised, the last minutes, its devices, what the plan's kind
// shows, and the last events.
func LivePage(s *served.State) (*Page, error) {
	p := &Page{Title: "Serving a plan of kind " + s.Kind, Sentence: liveSentence(s), Lines: liveLines(s), Refresh: int(served.Interval.Seconds()), Script: template.JS(liveScript), SecurityPolicy: LiveSecurityPolicy}
	p.Sections = append(p.Sections, liveModelSection(s))
	history, err := historySection(s)
	if err != nil {
		return nil, err
	}
	if len(history.Pictures) > 0 {
		p.Sections = append(p.Sections, history)
	}
	p.Sections = append(p.Sections, liveDeviceSection(s))
	if s.Part != nil {
		for _, t := range s.Part.Tables() {
			p.Sections = append(p.Sections, partSection(t))
		}
	}
	p.Sections = append(p.Sections, eventSection(s))
	return p, nil
}

// liveSentence returns a sentence with the rate and the attainment of the last minute, and whether the promise is kept.
func liveSentence(s *served.State) string {
	rates := &s.Total.Window
	over := fmt.Sprintf("In the last %.0f seconds", s.WindowS)
	if rates.Attainment == nil {
		came := int(math.Round(rates.OfferedRPS * s.WindowS))
		if came == 0 && s.OpenRequests == 0 {
			return over + " nothing was asked for."
		}
		return fmt.Sprintf("%s %s came, and none ended; %d have no answer yet.", over, document.CountOf(came, "request"), s.OpenRequests)
	}
	var missed []string
	for i := range s.Models {
		if promiseText(&s.Models[i]) == "missed" {
			missed = append(missed, s.Models[i].Key().String())
		}
	}
	verdict := "; every model that was asked for keeps its promise."
	if n := len(missed); n > 3 {
		verdict = fmt.Sprintf("; %d models miss their promise.", n)
	} else if n > 0 {
		verdict = fmt.Sprintf("; the promise is missed for %s.", strings.Join(missed, ", "))
	}
	return fmt.Sprintf("%s %.1f requests per second came, and %s of those that ended were in time%s", over, rates.OfferedRPS, percent(*rates.Attainment), verdict)
}

// liveLines are the facts about the server.
func liveLines(s *served.State) []string {
	ready := "ready"
	if !s.Ready {
		ready = "not ready: it is about to end"
	}
	lines := []string{
		fmt.Sprintf("Plan %s, policy %s, in force for %s; the server is %s and has run for %s.", shortHash(s.PlanSHA256), s.Policy, ageText(s.PlanAgeS), ready, ageText(s.UptimeS)),
		fmt.Sprintf("%s without an answer: %d wait, %d run.", document.CountOf(s.OpenRequests, "request"), s.Total.Waiting, s.Total.Running),
	}
	if len(s.DropsByReason) > 0 {
		var list []string
		for _, reason := range slices.Sorted(maps.Keys(s.DropsByReason)) {
			list = append(list, fmt.Sprintf("%d %s", s.DropsByReason[reason], reason))
		}
		lines = append(lines, "Dropped since the start, by reason: "+strings.Join(list, ", ")+".")
	}
	return append(lines, fmt.Sprintf("As of %s. The same as JSON: /live.json.", s.At.UTC().Format(time.DateTime+" MST")))
}

// shortHash returns the beginning of a digest.
func shortHash(sha string) string { return cmp.Or(sha[:min(len(sha), 12)], "without a file") }

// ageText returns a duration in seconds for people.
func ageText(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Truncate(time.Second).String()
}

// promiseText says whether a model has kept its promise in the window.
func promiseText(m *served.Model) string {
	switch {
	case m.Window.Attainment == nil:
		return "nothing ended"
	case *m.Window.Attainment < m.PromisedAttainment:
		return "missed"
	}
	return "kept"
}

// liveModelSection has a row for each model, and one for all of them if there are several. Beyond liveModels those stand that miss
// their promise, or else have most requests; the others are summed up.
func liveModelSection(s *served.State) Section {
	t := Table{Align: "lrrrrrrrlr", Header: []string{"model", "SLO ms", "planned rps", "offered rps", "answered rps", "in time rps", "in time", "promised", "promise", "in time since the start"}}
	if len(s.Models) > 1 {
		t.Rows = append(t.Rows, liveModelRow("all", &s.Total))
	}
	shown := make([]int, len(s.Models))
	for i := range shown {
		shown[i] = i
	}
	if len(shown) > liveModels {
		slices.SortStableFunc(shown, func(a, b int) int {
			return cmp.Or(-cmp.Compare(shortfall(&s.Models[a]), shortfall(&s.Models[b])), -cmp.Compare(s.Models[a].Window.OfferedRPS, s.Models[b].Window.OfferedRPS))
		})
		shown = slices.Sorted(slices.Values(shown[:liveModels]))
	}
	var others served.Model
	inTime, ended := 0.0, 0.0
	for i := range s.Models {
		m := &s.Models[i]
		if slices.Contains(shown, i) {
			t.Rows = append(t.Rows, liveModelRow(m.Key().String(), m))
			continue
		}
		others.PromisedRPS += m.PromisedRPS
		others.Window.OfferedRPS += m.Window.OfferedRPS
		others.Window.AnsweredRPS += m.Window.AnsweredRPS
		others.Window.InTimeRPS += m.Window.InTimeRPS
		inTime, ended = inTime+m.Window.InTimeRPS, ended+m.Window.AnsweredRPS+m.Window.DroppedRPS
		others.Counts.Add(m.Counts)
	}
	if n := len(s.Models) - len(shown); n > 0 {
		if ended > 0 {
			share := inTime / ended
			others.Window.Attainment = &share
		}
		t.Rows = append(t.Rows, liveModelRow(document.CountOf(n, "other model"), &others))
	}
	return Section{Title: "Promised against measured", Text: fmt.Sprintf("Rates are of the last %.0f seconds. In time is the share of what was answered or dropped.", s.WindowS), Table: &t}
}

// shortfall returns how far a model is below its promise.
func shortfall(m *served.Model) float64 {
	if m.Window.Attainment == nil {
		return 0
	}
	return max(m.PromisedAttainment-*m.Window.Attainment, 0)
}

// liveModelRow returns the row of a model. Several models together have no SLO and no promised share.
func liveModelRow(name string, m *served.Model) []string {
	row := []string{name, "", "", fmt.Sprintf("%.1f", m.Window.OfferedRPS), fmt.Sprintf("%.1f", m.Window.AnsweredRPS), fmt.Sprintf("%.1f", m.Window.InTimeRPS), shareOrNone(m.Window.Attainment), "", "", shareOrNone(m.Counts.Attainment())}
	if m.PromisedRPS > 0 {
		row[2] = fmt.Sprintf("%.1f", m.PromisedRPS)
	}
	if m.SLOUS > 0 {
		row[1], row[7], row[8] = document.FormatMillis(m.SLOUS.D()), percent(m.PromisedAttainment), promiseText(m)
	}
	return row
}

// shareOrNone returns a share for people, or a dash if there is none.
func shareOrNone(share *float64) string {
	if share == nil {
		return "–"
	}
	return percent(*share)
}

// historySection draws the samples: rates, attainment, busy devices, waiting requests, and the gauge of the plan's kind.
func historySection(s *served.State) (Section, error) {
	section := Section{Title: "The last ten minutes", Text: fmt.Sprintf("All models together, every %.0f seconds. Dashed lines are what the plan promises.", s.SampleInterval)}
	line := func(name string, value func(*served.Sample) (float64, bool)) picture.Line {
		l := picture.Line{Name: name}
		for i := range s.Samples {
			if v, ok := value(&s.Samples[i]); ok {
				l.Points = append(l.Points, plotter.XY{X: -s.Samples[i].AgeS, Y: v})
			}
		}
		return l
	}
	always := func(value func(*served.Sample) float64) func(*served.Sample) (float64, bool) {
		return func(sample *served.Sample) (float64, bool) { return value(sample), true }
	}
	promised := 0.0 // the share that all models are promised; 0 if they differ
	if len(s.Models) > 0 {
		promised = 100 * s.Models[0].PromisedAttainment
	}
	for i := range s.Models {
		if s.Models[i].PromisedAttainment != s.Models[0].PromisedAttainment {
			promised = 0
		}
	}

	// The panels of all kinds of plans.
	type titled struct {
		title string
		panel picture.Panel
	}
	panels := []titled{
		{"Requests per second", picture.Panel{FromZero: true, Limit: s.Total.PromisedRPS, Lines: []picture.Line{
			line("offered", always(func(p *served.Sample) float64 { return p.Rates.OfferedRPS })),
			line("answered", always(func(p *served.Sample) float64 { return p.Rates.AnsweredRPS })),
			line("in time", always(func(p *served.Sample) float64 { return p.Rates.InTimeRPS })),
		}}},
		{"Requests answered in time, %", picture.Panel{Limit: promised, Lines: []picture.Line{line("", func(p *served.Sample) (float64, bool) {
			if p.Rates.Attainment == nil {
				return 0, false
			}
			return 100 * *p.Rates.Attainment, true
		})}}},
	}
	busy := picture.Panel{FromZero: true}
	for k, kind := range s.DeviceKinds {
		if k < liveKinds {
			busy.Lines = append(busy.Lines, line(kind, func(p *served.Sample) (float64, bool) {
				if k >= len(p.BusyByKind) {
					return 0, false
				}
				return 100 * p.BusyByKind[k], true
			}))
		}
	}
	panels = append(panels, titled{"Devices busy, %", busy}, titled{"Requests that wait", picture.Panel{FromZero: true, Lines: []picture.Line{line("", always(func(p *served.Sample) float64 { return float64(p.Waiting) }))}}})
	if s.Part != nil {
		if title, _ := s.Part.Gauge(); title != "" {
			panels = append(panels, titled{title, picture.Panel{FromZero: true, Lines: []picture.Line{line("", always(func(p *served.Sample) float64 { return p.Gauge }))}}})
		}
	}
	ticks := agoTicks(s.Samples)
	for _, p := range panels {
		if slices.ContainsFunc(p.panel.Lines, func(l picture.Line) bool { return len(l.Points) == 1 }) {
			continue // one sample is no line
		}
		pictures, err := newPicture(p.title, picture.Figure{Ticks: ticks, Panels: []picture.Panel{p.panel}})
		if err != nil {
			return section, err
		}
		for i := range pictures {
			pictures[i].Legend = slices.DeleteFunc(pictures[i].Legend, func(name string) bool { return name == "" })
		}
		section.Pictures = append(section.Pictures, pictures...)
	}
	return section, nil
}

// agoTicks returns ticks for the ages of samples, five or six of them, down to every 10 seconds.
func agoTicks(samples []served.Sample) (ticks []plot.Tick) {
	newest, span := 0.0, 0.0 // the age of the newest sample, which stands for now, and the time from the oldest to it
	if n := len(samples); n > 0 {
		newest = samples[n-1].AgeS
		span = samples[0].AgeS - newest
	}
	step := 10.0
	for _, longer := range []float64{30, 60, 120} {
		if span > 5*step {
			step = longer
		}
	}
	for age := 0.0; age <= span; age += step {
		label := "now"
		switch {
		case age > 0 && step < 60:
			label = fmt.Sprintf("-%.0f s", age)
		case age > 0:
			label = fmt.Sprintf("-%.0f min", age/60)
		}
		ticks = append(ticks, picture.Tick(-newest-age, label))
	}
	return ticks
}

// narrowBar is the share of a bar from which on its label fits in it on a telephone.
const narrowBar = .15

// liveDeviceSection has a bar for each device, or for each kind of device if there are many.
func liveDeviceSection(s *served.State) Section {
	section := Section{Title: "Devices", Text: fmt.Sprintf("The share of the last %.0f seconds in which a device ran batches.", s.DeviceWindowS)}
	row := func(name string, kind int, busy float64, names string) DeviceRow {
		text := fmt.Sprintf("%.0f %%", 100*busy)
		label := ""
		if busy >= narrowBar {
			label = text
		}
		r := DeviceRow{Name: name, Names: names}
		if busy >= .005 {
			r.Parts = []DevicePart{{label, text + " busy", busy, kind}}
		}
		return r
	}
	if len(s.Devices) <= liveDevices {
		for _, d := range s.Devices {
			name := fmt.Sprintf("%d %s", d.Device, s.DeviceKinds[d.Kind])
			if d.Share > 1 {
				name += fmt.Sprintf(" (1/%d)", d.Share)
			}
			state := "up"
			if !d.Up {
				state = "down"
			}
			section.Devices = append(section.Devices, row(name, d.Kind, d.Busy, fmt.Sprintf("%s, busy %s", state, percent(d.Busy))))
		}
		return section
	}
	section.Text += " Each bar is the mean of a kind."
	for k, kind := range s.DeviceKinds {
		count, up, least, most, sum, weights := 0, 0, 1.0, 0.0, 0.0, 0.0
		for _, d := range s.Devices {
			if d.Kind != k {
				continue
			}
			count++
			if d.Up {
				up++
			}
			least, most = min(least, d.Busy), max(most, d.Busy)
			sum, weights = sum+d.Busy/float64(d.Share), weights+1/float64(d.Share)
		}
		if count > 0 {
			section.Devices = append(section.Devices, row(fmt.Sprintf("%d x %s", count, kind), k, sum/weights, fmt.Sprintf("%d up; busy %s on average, %s to %s", up, percent(sum/weights), percent(least), percent(most))))
		}
	}
	return section
}

// partSection returns a table of the plan's kind, without the rows beyond liveRows.
func partSection(t served.Table) Section {
	section := Section{Title: t.Title, Text: t.Text}
	if n := len(t.Rows); n > liveRows {
		section.Text = strings.TrimSpace(fmt.Sprintf("%s The first %d of %d rows; /live.json has all.", t.Text, liveRows, n))
		t.Rows = t.Rows[:liveRows]
	}
	if len(t.Rows) > 0 {
		section.Table = &Table{Align: t.Align, Header: t.Header, Rows: t.Rows}
	} else {
		section.Text = strings.TrimSpace(section.Text + " There are none now.")
	}
	return section
}

// eventSection lists the last events.
func eventSection(s *served.State) Section {
	t := Table{Align: "lllr", Header: []string{"time (UTC)", "level", "event", "times"}}
	for _, e := range s.Events {
		t.Rows = append(t.Rows, []string{e.At.UTC().Format(time.DateTime), e.Level, e.Text, fmt.Sprint(e.Times)})
	}
	return Section{Title: "Last events", Table: &t}
}
