package requestlog

import (
	"bytes"
	"encoding/csv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// form is the way in which a file holds its records.
type form uint8

const (
	csvForm  form = iota // a header of column names, then rows
	jsonForm             // a JSON object a line
	logForm              // a line that a pattern describes
)

// layout describes the files of one tool.
type layout struct {
	name    string         // the name of the tool and its file, for people
	form    form           //
	keys    []string       // columns or fields by which a file is recognised; with | between alternatives
	pattern *regexp.Regexp // what a line is, with a named group per field, for logForm

	// Names of the columns, fields or groups; with | between alternatives. Empty ones do not occur.
	time, prompt, output, model, class, session, cached, prefix, hashes, delay, path, status string
	parseTime                                                                                func(text string) (time.Time, error)

	// isRequest reports whether a record is a request. If it is nil, all are.
	isRequest func(r *record) bool
}

// layouts are the files that are recognised, the more particular first. The names of fields are from the documentation
// or source of the tools, in the versions that are named.
var layouts = []layout{
	{ // ai-dynamo/dynamo 0366e63, lib/llm/src/request_trace/types.rs; an OTLP or NATS envelope has the record in the field event
		name: "a request trace of NVIDIA Dynamo", form: jsonForm, keys: []string{"schema|event.schema", "event_type|event.event_type"},
		time: "request.request_received_ms|event_time_unix_ms|event.request.request_received_ms|event.event_time_unix_ms", parseTime: parseUnix(time.Millisecond),
		prompt: "request.input_tokens|request.replay.input_length|event.request.input_tokens|event.request.replay.input_length", output: "request.output_tokens|event.request.output_tokens",
		model: "request.model|event.request.model", session: "agent_context.session_id|event.agent_context.session_id", cached: "request.cached_tokens|event.request.cached_tokens",
		isRequest: func(r *record) bool {
			kind, _ := r.text("event_type|event.event_type")
			return kind == "request_end"
		},
	},
	{ // AIPerf 0.1.1 (db4f639), docs/tutorials/working-with-profile-exports.md: profile_export.jsonl
		name: "records of AIPerf (profile_export.jsonl)", form: jsonForm, keys: []string{"metadata.request_start_ns", "metrics"},
		time: "metadata.request_start_ns", parseTime: parseUnix(time.Nanosecond), prompt: "metrics.input_sequence_length.value", output: "metrics.output_sequence_length.value|metrics.output_token_count.value",
		session: "metadata.x_correlation_id|metadata.conversation_id",
		isRequest: func(r *record) bool {
			phase, _ := r.text("metadata.benchmark_phase")
			return phase != "warmup"
		},
	},
	{ // kvcache-ai/Mooncake 3b5a594, FAST25-release/traces; dynamo-data-gen 1.6, mooncake.rs: aliases, sessions, delays after the turn before
		name: "a trace in Mooncake's layout", form: jsonForm, keys: []string{"input_length|input_tokens", "output_length|output_tokens", "timestamp|created_time|delay|delay_ms|hash_ids"},
		time: "timestamp|created_time", parseTime: parseUnix(time.Millisecond), prompt: "input_length|input_tokens", output: "output_length|output_tokens",
		session: "session_id", delay: "delay|delay_ms", hashes: "hash_ids",
	},
	{ // AzurePublicDataset b469a11, data: AzureLLMInferenceTrace_{code,conv}.csv of 2023, *_1week.csv of 2024
		name: "a trace of Azure's LLM inference", form: csvForm, keys: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
		time: "TIMESTAMP", parseTime: parseText("2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05"), prompt: "ContextTokens", output: "GeneratedTokens",
	},
	{ // HPMLL/BurstGPT e92f533, README.md, BurstGPT_{1,2,3}.csv: seconds, and no answer where a request failed
		name: "a trace of BurstGPT", form: csvForm, keys: []string{"Timestamp", "Model", "Request tokens", "Response tokens"},
		time: "Timestamp", parseTime: parseUnix(time.Second), prompt: "Request tokens", output: "Response tokens", model: "Model", session: "Session ID",
		isRequest: func(r *record) bool {
			answer, _ := r.text("Response tokens")
			return answer != "0"
		},
	},
	{ // inference-sim f90a1e3, sim/workload/tracev2.go (traceV2Columns): the data file, beside its header in YAML
		name: "a trace of BLIS (TraceV2)", form: csvForm, keys: []string{"request_id", "prefix_group", "input_tokens", "output_tokens", "arrival_time_us"},
		time: "arrival_time_us", parseTime: parseUnix(time.Microsecond), prompt: "input_tokens", output: "output_tokens", model: "model", class: "slo_class", session: "session_id", prefix: "prefix_length",
	},
	{ // awsdocs/elb-application-load-balancers-user-guide 03410f5, doc_source/load-balancer-access-logs.md: field 22 is when the request came, field 2
		// when it was answered. New fields are added behind.
		name: "an access log of an Application Load Balancer", form: logForm,
		pattern: regexp.MustCompile(`^(?:https?|h2|grpcs|wss?) (?P<answered>\S+) \S+ \S+ \S+ \S+ \S+ \S+ (?P<status>\S+) \S+ \S+ \S+ "\S+ (?P<path>\S+) [^"]*"(?: "[^"]*" \S+ \S+ \S+ "[^"]*" "[^"]*" "[^"]*" \S+ (?P<time>\S+))?`),
		time:    "time|answered", parseTime: parseText(time.RFC3339), path: "path", status: "status", isRequest: isDemand,
	},
	{ // envoyproxy/envoy 01625a8, docs/root/configuration/observability/access_log/usage.rst: the default format string
		name: "an access log of Envoy", form: logForm,
		pattern: regexp.MustCompile(`^\[(?P<time>\d{4}-\d\d-\d\dT[^\]]+)\] "\S+ (?P<path>\S+) [^"]*" (?P<status>\d+) `),
		time:    "time", parseTime: parseText(time.RFC3339), path: "path", status: "status", isRequest: isDemand,
	},
	{ // istio/istio 86c9f01, pilot/pkg/model/telemetry_logging.go (EnvoyJSONLogFormatIstio), and Envoy's json_format with these names
		name: "an access log of Envoy in JSON", form: jsonForm, keys: []string{"start_time", "path", "response_code"},
		time: "start_time", parseTime: parseText(time.RFC3339), path: "path", status: "response_code", isRequest: isDemand,
	},
	{ // apache/httpd 0084dd7, docs/manual/mod/mod_log_config.xml: the Common Log Format, and Combined with further fields behind. nginx/nginx 3f6f782,
		// src/http/modules/ngx_http_log_module.c: its default is Combined, with the time of the answer
		name: "an access log in the Common or Combined Log Format", form: logForm,
		pattern: regexp.MustCompile(`^\S+ \S+ .*?\[(?P<time>\d{2}/\w{3}/\d{4}:[^\]]+)\] "\S+ (?P<path>\S+)[^"]*" (?P<status>\d{3}) `),
		time:    "time", parseTime: parseText("02/Jan/2006:15:04:05 -0700"), path: "path", status: "status", isRequest: isDemand,
	},
}

// Names returns the names of the files that are recognised.
func Names() []string {
	var names []string
	for i := range layouts {
		names = append(names, layouts[i].name)
	}
	return append(names, prometheusName)
}

// List returns the names of the files that are recognised, one a line, for help.
func List() string { return "  " + strings.Join(Names(), "\n  ") + "\n" }

// Recognize returns the name of the tool's file that begins with head, or "" if it is none of Names.
func Recognize(head []byte) string {
	if isPrometheus(head) {
		return prometheusName
	}
	if l := findLayout(head); l != nil {
		return l.name
	}
	return ""
}

// findLayout returns the layout of the file that begins with head, or nil.
func findLayout(head []byte) *layout {
	line, _, _ := bytes.Cut(bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), "\r\n"), []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	header, err := csv.NewReader(bytes.NewReader(line)).Read()
	if err != nil {
		header = nil
	}
	object, _ := parseObject(line)
	for i := range layouts {
		l := &layouts[i]
		switch l.form {
		case csvForm:
			if !slices.ContainsFunc(l.keys, func(key string) bool { return !slices.Contains(header, key) }) {
				return l
			}
		case jsonForm:
			r := record{object: object}
			if object != nil && !slices.ContainsFunc(l.keys, func(key string) bool { return !r.has(key) }) {
				return l
			}
		case logForm:
			if l.pattern.Match(line) {
				return l
			}
		}
	}
	return nil
}

// isDemand reports whether an entry of an access log is a request that a server should have answered: one that was not
// refused as wrong. Requests that timed out, were too many or were given up count.
func isDemand(r *record) bool {
	status, _ := r.text("status|response_code")
	code, err := strconv.Atoi(status)
	return err != nil || code < 400 || code >= 500 || code == 408 || code == 429 || code == 499 || code == 460
}

// parseUnix returns a function that reads times as numbers of units since any instant.
func parseUnix(unit time.Duration) func(string) (time.Time, error) {
	return func(text string) (time.Time, error) {
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err == nil && !(v >= 0 && v*unit.Seconds() <= maxSeconds) {
			err = strconv.ErrRange
		}
		if err != nil {
			return time.Time{}, err
		}
		whole := time.Duration(v)
		return time.Unix(0, 0).Add(whole*unit + time.Duration((v-float64(whole))*float64(unit)+0.5)), nil
	}
}

// parseText returns a function that reads times in one of the layouts of package time.
func parseText(formats ...string) func(string) (time.Time, error) {
	return func(text string) (at time.Time, err error) {
		for _, f := range formats {
			if at, err = time.Parse(f, strings.TrimSpace(text)); err == nil {
				break
			}
		}
		return at, err
	}
}

// maxSeconds bounds times since 1970, so that they fit a time.Duration.
const maxSeconds = 9e9
