package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
)

// bench describes the results of one benchmark of servers of language models. Names of fields have the fields around
// them with dots between, and | between alternatives; a number is an index of a list. Those that begin with / are
// fields of the whole document where the results are a list in it.
type bench struct {
	engine string   // the name of the tool
	keys   []string // fields by which a document is recognised
	list   string   // the field with the list of results; empty if the document is one

	model, requests, concurrency string
	input, output                string // tokens of a prompt and an answer: means, or totals of all requests
	areTotals                    bool
	ttft, itl                    string // medians in milliseconds

	pacing              string // a field that says when requests are sent; a number of clients is only their most unless it has one of clientPacings
	single              string // a field whose text "synchronous" says that one client sent requests
	concurrencyHint     string // how to run the tool so that the number of clients is known
	latencyHint         string // how to run it so that the time between tokens is measured
	isOneOfSeveralKinds bool   // results without a number of clients are left out
}

// benches are the benchmarks that are recognised, in the versions whose source the names of fields are from.
var benches = []bench{
	{ // vLLM 0.19 and 009e6d4, vllm/benchmarks/serve.py: --save-result
		engine: "vllm bench serve", keys: []string{"model_id", "completed", "total_input_tokens"},
		model: "model_id", requests: "completed", concurrency: "max_concurrency", input: "total_input_tokens", output: "total_output_tokens", areTotals: true, ttft: "median_ttft_ms", itl: "median_itl_ms",
		pacing: "request_rate", concurrencyHint: "run it with --max-concurrency, not with a rate", latencyHint: "run it with --percentile-metrics ttft,tpot,itl",
	},
	{ // SGLang 0033168, python/sglang/bench_serving.py: --output-file, a JSON object a line; later versions add what the server says of itself
		engine: "sglang.bench_serving", keys: []string{"backend", "completed", "total_input_tokens", "median_itl_ms"},
		model: "server_info.model_path|model_path", requests: "completed", concurrency: "max_concurrency", input: "total_input_tokens", output: "total_output_tokens", areTotals: true, ttft: "median_ttft_ms", itl: "median_itl_ms",
		pacing: "request_rate", concurrencyHint: "run it with --max-concurrency, not with a rate", latencyHint: "run it with streaming",
	},
	{ // AIPerf 0.1.1 (db4f639, aiperf/common/models/export_models.py, aiperf/common/config) and 0205ea1 (src/aiperf/config/phases.py, models.py at 0125258):
		// profile_export_aiperf.json. genai-perf 0.0.16 (263c5f6 of perf_analyzer, genai_perf/export_data/json_exporter.py): profile_export_genai_perf.json
		engine: "aiperf", keys: []string{"input_config", "time_to_first_token", "request_count|request_throughput"},
		model: "input_config.models.items.0.name|input_config.endpoint.model_names.0|input_config.model_names.0|input_config.model.0|input_config.model", requests: "request_count.avg",
		concurrency: "input_config.phases.name=profiling.concurrency|input_config.loadgen.concurrency|input_config.perf_analyzer.stimulus.concurrency|input_config.concurrency",
		input:       "input_sequence_length.avg", output: "output_sequence_length.avg", ttft: "time_to_first_token.p50", itl: "inter_token_latency.p50",
		pacing:          "input_config.phases.name=profiling.type|input_config.loadgen.request_rate|input_config.input.fixed_schedule|input_config.loadgen.request_rate_mode",
		concurrencyHint: "run it with --concurrency, not with a rate", latencyHint: "run it with --streaming",
	},
	{ // GuideLLM 0.3.0 to 0.7.3, src/guidellm/benchmark (benchmark.py in 0.3, schemas since 0.5) and scheduler/strategies.py: benchmarks.json
		engine: "guidellm", keys: []string{"benchmarks.0.config.strategy|benchmarks.0.args.strategy"}, list: "benchmarks",
		model:    "config.backend.model|args.backend.model|/args.model|/args.backend_kwargs.model|benchmarker.backend.model|worker.backend_model",
		requests: "metrics.request_totals.successful|run_stats.requests_made.successful|request_totals.successful", concurrency: "config.strategy.streams|args.strategy.streams", single: "config.strategy.type_|args.strategy.type_",
		input: "metrics.prompt_token_count.successful.mean", output: "metrics.output_token_count.successful.mean",
		ttft: "metrics.time_to_first_token_ms.successful.median", itl: "metrics.inter_token_latency_ms.successful.median",
		concurrencyHint: "run it with --rate-type concurrent or synchronous", latencyHint: "run it with streaming", isOneOfSeveralKinds: true,
	},
}

// clientPacings are the ways to send requests in which each client waits for an answer: no rate, and no schedule.
var clientPacings = []string{`"inf"`, `"concurrency"`, `"concurrency_burst"`, "false"}

// benchOf returns the name of the benchmark of which a document is a result, or "". head is its beginning, which may end
// anywhere.
func benchOf(head []byte) string {
	for i := range benches {
		b := &benches[i]
		if !slices.ContainsFunc(b.keys, func(key string) bool {
			return !slices.ContainsFunc(strings.Split(key, "|"), func(name string) bool {
				return strings.Contains(string(head), strconv.Quote(name[strings.LastIndex(name, ".")+1:]))
			})
		}) {
			return b.engine
		}
	}
	return ""
}

// maxBench bounds the bytes of a result: some tools add every request.
const maxBench = 1 << 28

// readBenches adds to s the results of a benchmark in which n clients each send their next request when one is answered. A
// file has one result, a list of results, or a result a line.
func readBenches(s *llmruns.Set, in io.Reader, name string) error {
	text, err := io.ReadAll(io.LimitReader(in, maxBench))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	d := json.NewDecoder(bytes.NewReader(quoteNonFinite(text)))
	count := 0
	for {
		var doc json.RawMessage
		if err := d.Decode(&doc); errors.Is(err, io.EOF) && count > 0 {
			break
		} else if err != nil {
			return &document.Error{File: name, Found: document.FaultOfJSON(err), Expected: "the result of a benchmark, a JSON object"}
		}
		count++
		i := slices.IndexFunc(benches, func(b bench) bool {
			return !slices.ContainsFunc(b.keys, func(key string) bool { return lookUp(doc, doc, key) == nil })
		})
		if i < 0 {
			return &document.Error{File: name, Found: "a JSON object that is no known result", Expected: "a result of " + strings.Join(document.Map(benches, func(b *bench) string { return b.engine }), ", ")}
		}
		if err := addResults(s, &benches[i], doc, name); err != nil {
			return err
		}
	}
	s.Sources = append(s.Sources, name)
	return nil
}

// textOrNonFinite matches a text of JSON, or a word that Python's json writes for a number that JSON does not have.
var textOrNonFinite = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// quoteNonFinite returns JSON with texts, or null, in place of numbers that JSON does not have.
func quoteNonFinite(text []byte) []byte {
	if !bytes.Contains(text, []byte("Infinity")) && !bytes.Contains(text, []byte("NaN")) {
		return text
	}
	return textOrNonFinite.ReplaceAllFunc(text, func(found []byte) []byte {
		switch string(found) {
		case "Infinity":
			return []byte(`"inf"`)
		case "-Infinity":
			return []byte(`"-inf"`)
		case "NaN":
			return []byte("null")
		}
		return found
	})
}

// addResults adds the results in a document to s.
func addResults(s *llmruns.Set, b *bench, doc json.RawMessage, name string) error {
	if b.list == "" {
		_, err := addResult(s, b, doc, doc, name, "")
		return err
	}
	var results []json.RawMessage
	if err := json.Unmarshal(lookUp(doc, doc, b.list), &results); err != nil {
		return &document.Error{File: name, Path: b.list, Found: "no list", Expected: "results of " + b.engine}
	}
	added := 0
	for i, result := range results {
		isAdded, err := addResult(s, b, doc, result, name, fmt.Sprintf("%s[%d].", b.list, i))
		if err != nil {
			return err
		}
		if isAdded {
			added++
		}
	}
	if added == 0 {
		return &document.Error{File: name, Path: b.list, Found: "no result with a number of clients", Expected: "at least one", Hint: b.concurrencyHint}
	}
	if n := len(results) - added; n > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: left out %s without a fixed number of clients", name, document.CountOf(n, "result")))
	}
	return nil
}

// addResult adds a result to s: it counts as an iteration of as many sequences as there were clients, with the median time
// between tokens at the mean context and, for one client, the median time to the first token. It returns false if the
// result has no number of clients and may be left out. place is put before the paths of fields in errors.
func addResult(s *llmruns.Set, b *bench, doc, result json.RawMessage, name, place string) (bool, error) {
	number := func(path string) (v float64, ok bool) {
		ok = json.Unmarshal(lookUp(doc, result, path), &v) == nil
		return v, ok
	}
	text := func(path string) (v string) {
		_ = json.Unmarshal(lookUp(doc, result, path), &v)
		return v
	}
	fail := func(path, found, expected string) error {
		path, _, _ = strings.Cut(path, "|")
		path = entryByName.ReplaceAllString(path, "[$1]")
		return &document.Error{File: name, Path: place + path, Found: found, Expected: expected}
	}

	// Read how many clients there were, how many requests, and how long they were.
	clients, hasClients := number(b.concurrency)
	if !hasClients && text(b.single) == "synchronous" {
		clients, hasClients = 1, true
	}
	if !hasClients && b.isOneOfSeveralKinds {
		return false, nil
	}
	requests, _ := number(b.requests)
	input, _ := number(b.input)
	output, _ := number(b.output)
	if b.areTotals && requests > 0 {
		input, output = input/requests, output/requests
	}
	itl, hasITL := number(b.itl)
	var pacing, pacingPath string
	for path := range strings.SplitSeq(b.pacing, "|") {
		if value := lookUp(doc, result, path); value != nil && pacing == "" {
			pacing, pacingPath = string(value), path
		}
	}
	switch {
	case !(requests >= 1 && requests <= llmruns.MaxTokens && input >= 1 && input <= llmruns.MaxTokens && output >= 1 && output <= llmruns.MaxTokens):
		return false, fail(b.requests, fmt.Sprintf("%g requests with %g tokens in and %g out each", requests, input, output), "requests that were completed")
	case !hasClients || !(clients >= 1 && clients <= requests) || clients != float64(int(clients)):
		return false, fail(b.concurrency, "none, or more than there were requests", "the number of clients: "+b.concurrencyHint)
	case pacing != "" && !slices.Contains(clientPacings, pacing):
		return false, fail(pacingPath, csvfile.Quote(cmp.Or(text(pacingPath), pacing)), "requests that wait for an answer: "+b.concurrencyHint)
	case !hasITL || !(itl > 0 && itl < llmruns.MaxMillis):
		return false, fail(b.itl, "none", "a positive time: "+b.latencyHint)
	}

	// Add the steps.
	model := text(b.model)
	p := llmruns.InstanceKey{Model: model[strings.LastIndex(model, "/")+1:], Engine: b.engine}
	s.Steps = append(s.Steps, llmruns.MeasuredStep{InstanceKey: p, Phase: llmruns.Decode, Batch: int(clients), Context: input + output/2, Elapsed: time.Duration(itl * 1e6)})
	if ttft, ok := number(b.ttft); ok && clients == 1 && ttft > 0 && ttft < llmruns.MaxMillis {
		s.Steps = append(s.Steps, llmruns.MeasuredStep{InstanceKey: p, Phase: llmruns.Prefill, Batch: 1, Tokens: int(input + 0.5), Elapsed: time.Duration(ttft * 1e6)})
	}
	return true, nil
}

// entryByName matches an entry of a list in a path of lookUp. Errors have it in brackets.
var entryByName = regexp.MustCompile(`\.(name=[^.]*)`)

// lookUp returns the value of the first of the paths, with | between them, that result has, or nil. A path that begins
// with / is one of doc.
func lookUp(doc, result json.RawMessage, paths string) json.RawMessage {
	for path := range strings.SplitSeq(paths, "|") {
		at := result
		if rest, isOfDoc := strings.CutPrefix(path, "/"); isOfDoc {
			at, path = doc, rest
		}
		for part := range strings.SplitSeq(path, ".") {
			at = member(at, part)
		}
		if len(at) > 0 && string(at) != "null" {
			return at
		}
	}
	return nil
}

// member returns a field of an object or, if name is a number or name=TEXT, an entry of a list. It returns nil if there
// is none.
func member(value json.RawMessage, name string) json.RawMessage {
	if text, isName := strings.CutPrefix(name, "name="); isName {
		var list []json.RawMessage
		_ = json.Unmarshal(value, &list)
		i := slices.IndexFunc(list, func(entry json.RawMessage) bool {
			var found string
			return json.Unmarshal(member(entry, "name"), &found) == nil && found == text
		})
		if i < 0 {
			return nil
		}
		return list[i]
	}
	if i, err := strconv.Atoi(name); err == nil {
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || i < 0 || i >= len(list) {
			return nil
		}
		return list[i]
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return nil
	}
	return object[name]
}
