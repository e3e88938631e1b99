from django.contrib import admin
from django.urls import path

from shop.models import Article

admin.site.register(Article, list_display=["name", "kind", "price"], search_fields=["name"], list_filter=["kind"])
urlpatterns = [path("admin/", admin.site.urls)]
