//! Pages for people: documentation, problems, and the dashboard.

use crate::api::prelude::*;

#[tokio::test]
async fn every_problem_is_explained_at_its_path() {
    let service = Service::start();
    for code in ProblemCode::ALL {
        let path = format!("/problems/{}", code.as_str());
        let json = service.get(&path).await;
        assert_eq!(json.status, 200, "{path}");
        assert_eq!(json["code"], code.as_str());
        assert_eq!(json["status"], code.status().as_u16());
        assert_eq!(json["title"], code.title());
        // A browser gets the same body.
        let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
        let seen = service.call(&format!("GET {path}"), &browser).await;
        assert_eq!(seen.body, json.body);
    }
    let missing = service.get("/problems/nope").await;
    assert_eq!(missing.problem(), (404, "not-found"));
}

#[tokio::test]
async fn the_documentation_page_loads_all_its_parts_from_here_and_nothing_from_elsewhere() {
    let service = Service::start();
    let page = service.get("/docs").await.is(200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(
        page.header("content-security-policy")
            .starts_with("default-src 'none'; script-src 'self';")
    );
    let parts = page
        .body
        .split(['"'])
        .filter(|text| text.contains(".js") || text.contains(".css"))
        .collect::<Vec<_>>();
    assert_eq!(parts.len(), 5, "{parts:?}");
    for part in parts {
        assert!(!part.contains("//"), "{part}");
        let answer = service.get(&format!("/{part}")).await;
        assert_eq!(answer.status, 200, "{part}");
        let media = answer.header("content-type");
        assert!(
            ["text/css; charset=utf-8", "text/javascript; charset=utf-8"].contains(&media),
            "{part}: {media}"
        );
    }
    let settings = service.get("/docs/swagger-initializer.js").await.body;
    assert_has(&settings, "\"url\": \"/openapi.json\"");
    assert_has(&settings, "\"validatorUrl\": \"none\"");
}

#[tokio::test]
async fn parts_that_do_not_exist_are_404() {
    let service = Service::start();
    for path in words("/docs/nope.js /docs/../Cargo.toml /docs/%2e%2e/Cargo.toml") {
        let answer = service.get(path).await;
        assert_eq!(answer.problem(), (404, "not-found"), "{path}");
    }
}

#[tokio::test]
async fn whoever_opens_the_gateway_finds_the_way() {
    let service = Service::start();
    assert_eq!(
        service.get("/").await.json(),
        json!({
            "dashboard": "/dashboard", "docs": "/docs", "name": "latchgate",
            "openapi": "/openapi.json", "version": "0.1.0",
        })
    );
}

const GZIP: (&str, &str) = ("accept-encoding", "gzip, deflate, br");
/// The largest size of the first page with all that it loads, as it is sent.
const MOST_SENT: usize = 150 * 1024;

async fn look(service: &Service, path: &str, headers: &[(&str, &str)]) -> ApiResponse {
    service.call(&format!("GET {path}"), headers).await
}

/// The size of an answer as it is sent, with its headers.
async fn sent(service: &Service, path: &str) -> usize {
    let answer = service.open(&format!("GET {path}"), &[GZIP], "").await;
    assert_eq!(answer.status(), 200, "{path}");
    let (head, body) = answer.into_parts();
    let headers = head.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    headers + body.collect().await.unwrap().to_bytes().len()
}

/// The parts of a text between one of these marks and the next quote or bracket.
fn named<'a>(text: &'a str, marks: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    marks.iter().flat_map(|mark| {
        text.split(mark)
            .skip(1)
            .filter_map(|rest| rest.split(['"', '\'', ')']).next())
    })
}

/// Resolves an address relative to a path.
fn resolved(from: &str, to: &str) -> String {
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The sizes of all files that a page loads, directly or through other files, and of the page itself.
async fn loaded(service: &Service, page: &str, base: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut left = vec![page.to_owned()];
    while let Some(path) = left.pop() {
        if found.contains_key(&path) {
            continue;
        }
        let answer = look(service, &path, &[]).await;
        assert_eq!(answer.status, 200, "{path}");
        let marks: &[&str] = match answer.header("content-type").split(';').next().unwrap() {
            "text/html" => &["src=\"", "href=\""],
            "text/javascript" => &[
                "from \"",
                "from '",
                "from\"",
                "import \"",
                "import '",
                "import\"",
            ],
            "text/css" => &["url(", "@import \""],
            _ => &[],
        };
        let from = if path == page { base } else { path.as_str() };
        for to in named(&answer.body, marks) {
            let is_here =
                to.contains('.') && !to.contains(':') && !to.contains(char::is_whitespace);
            if is_here && (path == page || to.starts_with('.')) {
                left.push(resolved(from, to));
            }
        }
        found.insert(path.clone(), sent(service, &path).await);
    }
    found
}

#[tokio::test]
async fn everything_that_the_first_page_loads_is_there_and_little() {
    let service = Service::start();
    let loaded = loaded(&service, "/dashboard", "/dashboard/").await;
    let all: usize = loaded.values().sum();
    assert!(all < MOST_SENT, "{all} bytes: {loaded:#?}");
}

#[tokio::test]
async fn below_a_base_path_the_page_finds_all_of_it_too() {
    let service = Service::configured(|it| it.http.base_path = "/gate".to_owned());
    let page = look(&service, "/gate/dashboard", &[]).await;
    assert!(
        page.body.contains("<base href=\"/gate/dashboard/\">"),
        "{}",
        page.body
    );
    assert_eq!(page.body.matches("<base ").count(), 1);
    let below = loaded(&service, "/gate/dashboard", "/gate/dashboard/").await;
    let at_root = loaded(&Service::start(), "/dashboard", "/dashboard/").await;
    assert_eq!(below.len(), at_root.len());
    let deep = look(&service, "/gate/dashboard/locks/a", &[]).await;
    assert_eq!(deep.body, page.body);
    assert_eq!(look(&service, "/dashboard", &[]).await.status, 404);
}

#[tokio::test]
async fn a_link_into_the_page_is_the_page_and_a_file_that_is_missing_is_missing() {
    let service = Service::start();
    let page = look(&service, "/dashboard", &[]).await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let pages = "/dashboard/ /dashboard/locks /dashboard/locks/deploy:prod /dashboard/events /dashboard/sign-in
        /dashboard/locks/a.b.js?tab=queue /dashboard/locks/%3Cscript%3E /dashboard/nope /dashboard/index.html";
    for path in words(pages) {
        let answer = look(&service, path, &[]).await;
        assert_eq!((answer.status, &answer.body), (200, &page.body), "{path}");
        assert_eq!(
            answer.header("content-security-policy"),
            page.header("content-security-policy"),
            "{path}"
        );
    }
    let missing = "/dashboard/nope.js /dashboard/vendor/nope@1.0.0/nope.js /dashboard/README.md
        /dashboard/vendor/preact@1.2/x /dashboard/a.b/c /dashboard/../Cargo.toml /dashboard/%2e%2e/Cargo.toml";
    for path in words(missing) {
        let answer = look(&service, path, &[]).await;
        assert_eq!(answer.problem(), (404, "not-found"), "{path}");
    }
}

#[tokio::test]
async fn a_browser_is_told_to_load_nothing_from_elsewhere_and_to_run_nothing_in_the_page() {
    let service = Service::start();
    let page = look(&service, "/dashboard", &[]).await;
    for (header, value) in [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
             connect-src 'self'; font-src 'self'; base-uri 'self'; form-action 'self'; \
             frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-cache"),
        ("vary", "Accept-Encoding"),
    ] {
        assert_eq!(page.header(header), value, "{header}");
    }
    assert!(page.header("permissions-policy").contains("camera=()"));
    for path in loaded(&service, "/dashboard", "/dashboard/")
        .await
        .into_keys()
    {
        let answer = look(&service, &path, &[]).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        let media = answer.header("content-type");
        assert!(
            !media.starts_with("text/") || media.ends_with("; charset=utf-8"),
            "{media}"
        );
        let keep = answer.header("cache-control");
        assert_eq!(keep, "no-cache", "{path}");
    }
}
