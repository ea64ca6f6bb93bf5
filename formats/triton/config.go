package triton

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"

	"inferplan/formats/document"
	"inferplan/formats/triton/configpb"
)

// ConfigName is the name of the file with the configuration of a model, in the model's folder.
const ConfigName = "config.pbtxt"

// Words of a configuration.
const (
	OnnxBackend   = "onnxruntime"
	OnnxPlatform  = "onnxruntime_onnx"
	OnnxFile      = "model.onnx"
	EnsembleWord  = "ensemble" // the platform of an ensemble
	ThreadsOption = "intra_op_thread_count"
)

// Keys of the parameters by which a configuration says what it holds of a plan. Triton's backends ignore parameters
// that they do not know.
const (
	ModelParameter    = "inferplan_model"
	ClassParameter    = "inferplan_class"
	BlocksParameter   = "inferplan_blocks"   // first-end, such as 0-5; absent if the model is whole
	PipelineParameter = "inferplan_pipeline" // groups the parts of one pipeline; absent if the model is whole
)

// randomSpace is the second space that prototext puts behind some names, at random by the build of the program.
var randomSpace = regexp.MustCompile(`(?m)^( *[^ "\n]+)  `)

// FormatConfig returns a configuration as the text of config.pbtxt. The same configuration gives the same text.
func FormatConfig(c *configpb.ModelConfig) (string, error) {
	text, err := prototext.MarshalOptions{Multiline: true, Indent: "  "}.Marshal(c)
	if err != nil {
		return "", err
	}
	return randomSpace.ReplaceAllString(string(text), "$1 "), nil
}

// position finds the position in an error of prototext.
var position = regexp.MustCompile(`\(line (\d+):(\d+)\):? *`)

// ParseConfig parses the text of config.pbtxt strictly: an unknown field is a *document.Error. file is the caller's
// name of the text.
func ParseConfig(file string, text []byte) (*configpb.ModelConfig, error) {
	c := &configpb.ModelConfig{}
	err := prototext.Unmarshal(text, c)
	if err == nil {
		return c, nil
	}
	// The message begins with "proto:" and a space that is at random a wide one.
	message := strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto:"))
	finding := &document.Error{File: file, Expected: "the text form of Triton's ModelConfig"}
	if m := position.FindStringSubmatch(message); m != nil {
		finding.Line, _ = strconv.Atoi(m[1])
		finding.Column, _ = strconv.Atoi(m[2])
		message = strings.Replace(message, m[0], "", 1)
	}
	finding.Found = strings.TrimSpace(strings.TrimPrefix(message, "syntax error"))
	finding.Found = strings.TrimPrefix(finding.Found, ": ")
	return nil, finding
}

// GroupName returns the name of a group of instances that have a share 1/v of a device each.
func GroupName(device string, share int) string { return fmt.Sprintf("%s 1/%d", device, share) }

// groupName matches the names that GroupName returns.
var groupName = regexp.MustCompile(`^(.+) 1/([1-9]\d{0,3})$`)

// ParseGroupName returns the device and share that a group's name says, or false if it says none.
func ParseGroupName(name string) (device string, share int, ok bool) {
	m := groupName.FindStringSubmatch(name)
	if m == nil {
		return "", 0, false
	}
	share, _ = strconv.Atoi(m[2])
	return m[1], share, true
}
