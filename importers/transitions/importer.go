package transitions

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/policy/conform"
	"inferplan/policy/flow"
	"inferplan/policy/policies"
)

type transitionsImport struct {
	sourceKind  string
	plan        string
	application string
	gap         time.Duration
}

// Importer describes the verb import transitions, which turns recorded requests of workflows into their
// ways: which models each request ran, in which order.
func Importer() *importers.Importer {
	o := &transitionsImport{}
	return &importers.Importer{
		Usage:   "transitions FILE... --from log|spans|sessions",
		Summary: "Recorded requests of workflows into the ways that they took",
		Description: `Recorded requests of workflows into the ways that they took, which prediction learns from.

log:      event logs of 'plan serve --event-log' or 'plan simulate --event-log', over --plan
spans:    OpenTelemetry spans in JSON (OTLP), a document or one per line; a trace is a request,
          and spans that name a model (gen_ai.request.model) are its tasks
sessions: a request trace of agents in CSV: t_us or t_s, session, model; also application,
          end_us or end_s, id, and reads (ids of what a call reads); the calls of a session
          are a request, up to a pause of --gap

Name the file in an application's transitions in the workload.`,
		Example: `  plan import transitions events.log --from log --plan plan.json
  plan import transitions spans.jsonl --from spans --application chat -o transitions.json`,
		MinArguments: 1, MaxArguments: importers.AnyNumber, DefaultOutput: "transitions.json", Kind: formats.KindTransitions, RequiredFlags: []string{"from"},
		Recognize: func(head []byte) string {
			if spansHead.Match(head) {
				return "spans of OpenTelemetry (OTLP)"
			}
			return ""
		},
		FlagWords: map[string][]string{"from": {"log", "spans", "sessions"}},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&o.sourceKind, "from", "", "kind of the record: log, spans or sessions (required)")
			f.StringVar(&o.plan, "plan", "plan.json", "plan of the runs that event logs are of")
			f.StringVar(&o.application, "application", "", "application of requests that do not name one (default: the name of a trace's first span; sessions)")
			f.DurationVar(&o.gap, "gap", 10*time.Second, "pause of a session after which its next call begins another request")
		},
		Import: o.importTransitions,
	}
}

// spansHead has the first characters of a document of spans.
var spansHead = regexp.MustCompile(`^\s*\{\s*"resourceSpans"\s*:`)

// importTransitions reads the recordings in the files, writes their ways as a document and prints how many there are.
func (o *transitionsImport) importTransitions(r *importers.Run) error {
	if err := cmp.Or(usage.CheckWord("from", o.sourceKind, "log", "spans", "sessions"), usage.CheckPositiveDuration("gap", o.gap)); err != nil {
		return err
	}
	rec, requests := NewRecorder(), 0
	for _, path := range r.Args {
		n, err := o.readLogFile(path, rec)
		if err != nil {
			return usage.Mark(err)
		}
		requests += n
	}
	if note := rec.Note(); note != "" {
		r.PrintNote("note: %s", note)
	}
	doc := rec.Document()
	if err := doc.Validate(); err != nil {
		return usage.Mark(err)
	}
	if err := r.SaveDocument(r.Path, doc); err != nil {
		return err
	}
	if !r.JSON {
		for _, a := range doc.Applications {
			fmt.Fprintf(r, "%s: %s\n", a.Application, document.CountOf(len(a.Paths), "way"))
		}
	}
	return r.PrintResult(map[string]any{"requests": requests, "applications": len(doc.Applications)}, "wrote %s: %s", r.Path, document.CountOf(requests, "request"))
}

// readLogFile reads a file, which may be compressed with gzip. It adds the requests' ways to recorder and returns the
// number of requests.
func (o *transitionsImport) readLogFile(path string, recorder *Recorder) (n int, err error) {
	if o.sourceKind == "log" {
		f, err := conform.OpenLogFile(path)
		if err != nil {
			return 0, err
		}
		n, err := o.readEventLog(f, path, recorder)
		return n, errors.Join(err, f.Close())
	}
	f, err := csvfile.Open(path)
	if err != nil {
		return 0, err
	}
	if o.sourceKind == "spans" {
		n, err = ReadSpans(f, path, o.application, recorder)
	} else {
		n, err = ReadSessions(f, o.application, o.gap, recorder)
	}
	return n, errors.Join(err, f.Close())
}

// readEventLog reads an event log of a run of the plan. It replays the log's events, adds the way of every request
// that has ended to recorder, and returns their number. A way is the path of a request through the modules of its
// application.
func (o *transitionsImport) readEventLog(r io.Reader, path string, recorder *Recorder) (int, error) {
	plan, err := formats.ReadPlan(o.plan)
	if err != nil {
		return 0, err
	}
	t, err := policies.Compile(plan)
	if err != nil {
		return 0, err
	}
	requests := 0
	rec := flow.NewPathRecorder(t, func(application string, path formats.Way) {
		requests++
		recorder.Add(application, path)
	})
	l, err := conform.OpenLog(r)
	for err == nil {
		var c conform.Call
		if c, err = l.Next(); err == nil {
			rec.HandleEvent(&c.Event)
		}
	}
	if !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if requests == 0 {
		return 0, &document.Error{File: path, Found: "no request of several tasks that has ended", Expected: "a run of workflows"}
	}
	return requests, nil
}
