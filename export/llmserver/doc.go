// Package llmserver turns the instances of a queue plan into the processes of a server of language models.
//
// An Engine says how one server is started: its command and how it changes models. NewTarget makes a target of plan
// export of it. The target reads the plan into a Layout (which server runs where, with which models and limits), and
// writes for every node a start script, a compose file and the command of its agent, and for the front end the command
// of plan serve.
//
// Read layout.go, engine.go, folder.go, compose.go.
package llmserver
