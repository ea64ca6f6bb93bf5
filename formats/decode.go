package formats

import (
	"embed"
	"strings"

	"inferplan/formats/document"
)

// Kinds of documents.
const (
	KindProfile  = "profile"
	KindCluster  = "cluster"
	KindWorkload = "workload"
	KindPlan     = "plan"
	KindReport   = "report"
	// KindTransitions is the kind of documents that record the paths of workflow requests.
	KindTransitions = "transitions"
)

// Values of the format field.
const (
	FormatProfile  = "inferplan.profile/v1"
	FormatCluster  = "inferplan.cluster/v1"
	FormatWorkload = "inferplan.workload/v1"
	FormatPlan     = "inferplan.plan/v2"
	FormatReport   = "inferplan.report/v1"
	// FormatTransitions is of recorded ways.
	FormatTransitions = "inferplan.transitions/v1"
)

// kindTable is the only list of kinds: reading, schemas and tests follow it.
var kindTable = document.Kinds{
	{Name: KindProfile, Format: FormatProfile, Version: 1, NewDocument: func() document.Document { return new(Profile) }},
	{Name: KindCluster, Format: FormatCluster, Version: 1, NewDocument: func() document.Document { return new(Cluster) }},
	{Name: KindWorkload, Format: FormatWorkload, Version: 1, NewDocument: func() document.Document { return new(Workload) }},
	{Name: KindPlan, Format: FormatPlan, Version: 2, NewDocument: func() document.Document { return new(Plan) }, Older: []document.OlderForm{{Format: "inferplan.plan/v1", NewDocument: func() document.Older { return new(planV1) }}}},
	{Name: KindReport, Format: FormatReport, Version: 1, NewDocument: func() document.Document { return new(Report) }},
	{Name: KindTransitions, Format: FormatTransitions, Version: 1, NewDocument: func() document.Document { return new(Transitions) }},
}

// Kinds lists the kinds of documents.
func Kinds() []string { return kindTable.Names() }

// Decode reads a document of any kind from bytes. doc is a *Profile, *Cluster and so on. Errors use name for the
// document. Its ending (.json, .yaml, .yml) selects the syntax. Without a known ending, text that starts with a
// brace is read as JSON.
func Decode(data []byte, name string) (kind string, doc any, err error) {
	return kindTable.Decode(string(data), name, "")
}

// ReadProfile reads, decodes and validates a profile.
func ReadProfile(path string) (*Profile, error) {
	return document.Read[*Profile](kindTable, path, KindProfile)
}

// ReadCluster reads, decodes and validates a cluster.
func ReadCluster(path string) (*Cluster, error) {
	return document.Read[*Cluster](kindTable, path, KindCluster)
}

// ReadWorkload reads, decodes and validates a workload.
func ReadWorkload(path string) (*Workload, error) {
	return document.Read[*Workload](kindTable, path, KindWorkload)
}

// ReadPlan reads, decodes and validates a plan.
func ReadPlan(path string) (*Plan, error) { return document.Read[*Plan](kindTable, path, KindPlan) }

// ReadReport reads, decodes and validates a report.
func ReadReport(path string) (*Report, error) {
	return document.Read[*Report](kindTable, path, KindReport)
}

// ReadTransitions reads, decodes and validates recorded ways.
func ReadTransitions(path string) (*Transitions, error) {
	return document.Read[*Transitions](kindTable, path, KindTransitions)
}

// DecodeProfile is ReadProfile for bytes.
func DecodeProfile(data []byte, name string) (*Profile, error) {
	return document.Decode[*Profile](kindTable, string(data), name, KindProfile)
}

// DecodePlan is ReadPlan for bytes.
func DecodePlan(data []byte, name string) (*Plan, error) {
	return document.Decode[*Plan](kindTable, string(data), name, KindPlan)
}

//go:embed schema/*.json
var schemas embed.FS

// schemaFile returns the text of a schema's built-in file, which has this name without its ending. A missing file
// is empty.
func schemaFile(name string) string {
	data, err := schemas.ReadFile("schema/" + name + ".json")
	if err != nil {
		return "" // a test reads them all
	}
	return string(data)
}

// Schema returns the JSON Schema (draft 2020-12) of a kind of document, complete
// in itself. Where a document has a section, the schemas of all sections and of
// the options of their kinds are in it. A test holds it against the Go types.
func Schema(kind string) ([]byte, error) {
	k := kindTable.Find(kind)
	if k == nil {
		return nil, &document.Error{Found: "the kind " + document.Quote(kind), Expected: strings.Join(Kinds(), ", "), Hint: document.DidYouMean(kind, Kinds())}
	}
	if d, ok := k.NewDocument().(document.Sectioned); ok {
		return document.Schema(schemaFile(kind), kind, d.Sections())
	}
	return []byte(schemaFile(kind)), nil
}
