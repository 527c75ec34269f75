package main

import (
	"html/template"
	"net/http"
)

// No script is in a page, and none runs.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// What a page says; a teacher's words and an attendee's are escaped by the template.
type page struct {
	Title, Heading, Text string
	// The form for a name; or for who has a place's code already.
	AsksName bool
	Code     string
	// What the form's cookie is made of: a form that is sent twice gives one place.
	Once string
	// How the place comes up at home.
	Home *takenHome
	// Seconds after which the browser looks again; 0 for a page that stays.
	Again int
}

var pages = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{{if .Again}}<meta http-equiv="refresh" content="{{.Again}}">{{end}}
<title>{{.Title}}</title>
<style>
  :root { color-scheme: light dark; font: 1.1rem/1.5 system-ui, sans-serif; }
  body { max-width: 32rem; margin: 12vh auto; padding: 0 1.5rem; }
  h1 { font-size: 1.5rem; }
  label { display: block; margin-top: 1.5rem; }
  input { font: inherit; box-sizing: border-box; width: 100%; padding: .5rem; margin: .25rem 0 .75rem; }
  button { font: inherit; padding: .5rem 1.25rem; }
  pre { padding: .75rem; border: 1px solid; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .95rem; }
</style>
<h1>{{.Heading}}</h1>
{{with .Text}}<p>{{.}}</p>{{end}}
{{if .AsksName}}<form method="post" action="/_door/claim">
  <label>Your name <input name="name" maxlength="60" autocomplete="name" required autofocus></label>
  <input type="hidden" name="once" value="{{.Once}}">
  <button>Enter</button>
</form>{{end}}
{{if .Code}}<form method="post" action="/_door/claim">
  <input type="hidden" name="code" value="{{.Code}}">
  <input type="hidden" name="once" value="{{.Once}}">
  <button>Enter this place</button>
</form>{{end}}
{{with .Home}}<p><a href="/_door/home/files" download="{{.File}}">Download {{.File}}</a></p>
<p>In this file are your labs, with what you changed and how far you came, and what your jobs were made of, in
<code>labs/.jobs</code>. It is as it was when you packed it: “Ray: Take My Files Home” in the editor packs it anew. What
you saved elsewhere in your place is not in it.</p>
<p>At home, on Linux, macOS or WSL 2, with git and Python 3.10 or later, open a terminal in the folder where the file was
saved, and paste these two commands:</p>
<pre>git clone {{.Address}} rayside &amp;&amp; tar -xzf {{.File}} -C rayside labs</pre>
<pre>cd rayside &amp;&amp; ./invokew up</pre>
{{if not .HasAddress}}<p>Ask your teacher for the address that stands in the place of <code>{{.Address}}</code>.</p>{{end}}
<p>The first brings Rayside, and your files into it; the second brings a Ray cluster up, with the debugger and the editor.
<code>./invokew labs</code> lists the labs, and <code>./invokew lab 1</code> goes on with your copy of the first.</p>{{end}}
</html>
`))

func (p page) write(w http.ResponseWriter, status int) {
	protect(w.Header(), pagePolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	pages.Execute(w, p)
}

// Has browsers keep nothing of an answer, guess nothing about it, and let it do what the policy says and no more.
func protect(header http.Header, policy string) {
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
}
